// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"fmt"
	"net/http"
	"sort"
	"time"
)

// Result is what was noticed between Start and Stop.
type Result struct {
	// Failures are what must not happen, in words. Empty: nobody noticed anything.
	Failures []string
	// Reads are all reads of discovery, in order.
	Reads []Read
	// Answers counts requests: by client and version, and then by status.
	Answers map[string]map[int]int
	// Excused is the number of 404s while discovery was changing.
	Excused int
	// Slowest is the longest time to an answer.
	Slowest time.Duration
	// Namespaces is how long each took to go.
	Namespaces []time.Duration
	// AutoscalerStates and FigureSamples say how often these were looked at.
	AutoscalerStates, FigureSamples int
	// Registered is how many APIServices were created, of any group: an operator
	// registers one of its own before it takes over another.
	Registered int
	// Figures are the platform's, in words.
	Figures []string

	began, ended time.Time
}

func (r *Result) fail(format string, args ...any) {
	r.Failures = append(r.Failures, fmt.Sprintf(format, args...))
}

// judgeReads: discovery answers, and always offers v1beta1.
func (r *Result) judgeReads() {
	for _, read := range r.Reads {
		switch {
		case read.Err != "":
			r.fail("discovery at %s: %s", clock(read.Began), read.Err)
		case !read.Lists("v1beta1"):
			r.fail("discovery at %s: v1beta1 is not current; current: %v, stale: %v", clock(read.Began), read.Current, read.Stale)
		}
	}
}

func (r *Result) judgeRequests(requests []Request) {
	r.Answers = map[string]map[int]int{}
	for _, request := range requests {
		kind := request.Client + ", " + request.Version
		if r.Answers[kind] == nil {
			r.Answers[kind] = map[int]int{}
		}
		r.Answers[kind][request.Code]++
		r.Slowest = max(r.Slowest, request.Ended.Sub(request.Began))
		if request.Code == http.StatusOK {
			continue
		}
		if request.Code == http.StatusNotFound && request.Version == "v1" && !r.promised(request) {
			r.Excused++
			continue
		}
		r.fail("%s client at %s, after %s: %s: %d %s", request.Client, clock(request.Began),
			request.Ended.Sub(request.Began).Round(time.Millisecond), request.Path, request.Code, request.Text)
	}
}

// promised tells whether discovery listed the version before the request and still
// did 15 s later. A request that nothing is known of later counts as promised.
func (r *Result) promised(request Request) bool {
	before := sort.Search(len(r.Reads), func(i int) bool { return r.Reads[i].Ended.After(request.Began) }) - 1
	for before >= 0 && r.Reads[before].Err != "" {
		before--
	}
	if before < 0 || !r.Reads[before].Lists(request.Version) {
		return false
	}
	for _, read := range r.Reads[before+1:] {
		if read.Err == "" && !read.Began.Before(request.Ended.Add(Settle)) {
			return read.Lists(request.Version)
		}
	}
	return true
}

func (r *Result) judgeFigures(before, after figures) {
	grown := func(family string, labels map[string]string) float64 {
		return after.sum(family, labels) - before.sum(family, labels)
	}
	constant := func(family string, labels map[string]string) {
		n := grown(family, labels)
		text := fmt.Sprintf("%s%s: +%g", family, labelText(labels), n)
		r.Figures = append(r.Figures, text)
		if n != 0 {
			r.fail("%s", text)
		}
	}
	r.judgeTerminations(grown)
	constant(unavailableTotal, map[string]string{"name": "v1." + group})
	constant(unavailableTotal, map[string]string{"name": "v1beta1." + group})
	if after[computations] == nil && before[computations] == nil {
		r.Figures = append(r.Figures, computations+": not read")
		return
	}
	constant(computations, map[string]string{"error": "internal", "metric_type": "Resource"})
	n := grown(computationTime, nil)
	r.Figures = append(r.Figures, fmt.Sprintf("%s: %g computations, mean %.1f ms", computationTime, n,
		1000*(after.seconds(computationTime)-before.seconds(computationTime))/max(n, 1)))
}

// judgeTerminations: the aggregator gave up no request of a client. It does count one
// of its own for each APIService that is made: the first read of the new server's
// discovery comes before the first check of its availability, always, and is
// repeated half a second later: on a busy machine before that check is done, again.
func (r *Result) judgeTerminations(grown func(string, map[string]string) float64) {
	own := grown(terminations, map[string]string{"component": "aggregator", "group": "", "subresource": "/apis"})
	others := grown(terminations, map[string]string{"component": "aggregator"}) - own
	text := fmt.Sprintf("%s{component=\"aggregator\"}: +%g, and +%g of its own discovery", terminations, others, own)
	r.Figures = append(r.Figures, text)
	if others != 0 || own > float64(2*r.Registered) {
		r.fail("%s; %d APIServices were created", text, r.Registered)
	}
}
