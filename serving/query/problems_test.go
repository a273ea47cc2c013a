// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
)

// read is a call of Values, some seconds after the first.
type read struct {
	after      int
	expression string
	label      string
	selector   string
	objects    []string
	samples    []Sample
	err        error
}

// describeProblem returns a problem as text.
func describeProblem(s *Problem) string {
	switch {
	case s == nil:
		return ""
	case s.Failure != nil:
		return fmt.Sprintf("%s: %s", s.Query.Expression, s.Failure.Error())
	}
	return fmt.Sprintf("%s: %s %s%s", s.Query.Expression, s.OmitReason, s.Object, s.Labels)
}

func TestProblemTracker(t *testing.T) {
	var (
		whole      = []Sample{sampleOf(1, "pod", "a"), sampleOf(1, "pod", "b")}
		noA        = []Sample{sampleOf(math.NaN(), "pod", "a"), sampleOf(1, "pod", "b")}
		noB        = []Sample{sampleOf(1, "pod", "a"), sampleOf(math.NaN(), "pod", "b")}
		neither    = []Sample{sampleOf(math.NaN(), "pod", "a"), sampleOf(math.NaN(), "pod", "b")}
		twice      = []Sample{sampleOf(1, "pod", "a", "code", "200"), sampleOf(2, "pod", "a", "code", "500")}
		elsewhere  = []Sample{sampleOf(1, "instance", "a")}
		unlabelled = []Sample{sampleOf(math.NaN(), "queue", "x"), sampleOf(2, "queue", "y")}
		onlyA      = []string{"a"}
		onlyB      = []string{"b"}
		long       = strings.Repeat("é", 1000)
	)
	failed := func(reason Reason, message string) error {
		return fmt.Errorf("metric: %w", &EvaluationError{Failure: &Failure{Source: "p", Reason: reason, Message: message}, FailedIntervals: 1})
	}
	tests := map[string]struct {
		reads []read
		// at is the time of Current, in seconds after the first read.
		at   int
		want string
	}{
		"whole":                     {[]read{{samples: whole}}, 0, ""},
		"no series":                 {[]read{{}}, 0, ""},
		"NaN":                       {[]read{{samples: noA}}, 0, "q: NaN a"},
		"several series":            {[]read{{samples: twice}}, 0, "q: Duplicate a"},
		"only of others":            {[]read{{samples: noA, objects: onlyB}}, 0, ""},
		"the label is missing":      {[]read{{samples: elsewhere, objects: onlyA}}, 0, `q: NoObject {instance="a"}`},
		"the label is back":         {[]read{{samples: elsewhere, objects: onlyA}, {after: 15, samples: whole, objects: onlyA}}, 15, ""},
		"of no object":              {[]read{{label: "-", samples: unlabelled}}, 0, `q: NaN {queue="x"}`},
		"rejected":                  {[]read{{err: failed(ReasonRejected, "many-to-many")}}, 0, `q: source "p": Rejected: many-to-many`},
		"too large":                 {[]read{{err: failed(ReasonTooLarge, "many")}}, 0, `q: source "p": TooLarge: many`},
		"late":                      {[]read{{err: failed(ReasonTimeout, "late")}}, 0, `q: source "p": Timeout: late`},
		"a status":                  {[]read{{err: failed(ReasonBadStatus, "500")}}, 0, `q: source "p": BadStatus: 500`},
		"too often":                 {[]read{{err: failed(ReasonRateLimited, "429")}}, 0, `q: source "p": RateLimited: 429`},
		"the source's own fault":    {[]read{{err: failed(ReasonConnectionFailed, "refused")}}, 0, ""},
		"nor may it ask":            {[]read{{err: failed(ReasonUnauthorized, "401")}}, 0, ""},
		"the client left":           {[]read{{err: context.Canceled}}, 0, ""},
		"mended":                    {[]read{{samples: noA}, {after: 15, samples: whole}}, 15, ""},
		"the same result":           {[]read{{samples: noA}, {samples: whole}}, 15, "q: NaN a"},
		"mended after a failure":    {[]read{{after: 5, err: failed(ReasonRejected, "x")}, {samples: whole}}, 15, ""},
		"an older result":           {[]read{{after: 20, err: failed(ReasonRejected, "x")}, {samples: whole}}, 20, `q: source "p": Rejected: x`},
		"another failure":           {[]read{{samples: noA}, {after: 15, err: failed(ReasonConnectionFailed, "x")}}, 15, "q: NaN a"},
		"others are well":           {[]read{{samples: noA}, {after: 15, samples: noA, objects: onlyB}}, 15, "q: NaN a"},
		"it is well by its name":    {[]read{{samples: noA}, {after: 15, samples: whole, objects: onlyA}}, 15, ""},
		"another query is well":     {[]read{{samples: noA}, {after: 15, expression: "other", samples: whole}}, 15, "q: NaN a"},
		"of other objects' label":   {[]read{{samples: noA}, {after: 15, label: "node", samples: []Sample{sampleOf(1, "node", "n")}}}, 15, "q: NaN a"},
		"other series are well":     {[]read{{label: "-", samples: unlabelled}, {after: 15, label: "-", selector: "queue=y", samples: unlabelled}}, 15, `q: NaN {queue="x"}`},
		"now another lacks it":      {[]read{{samples: noA}, {after: 15, samples: noB}}, 15, "q: NaN b"},
		"it stays the example":      {[]read{{samples: noB}, {after: 15, samples: neither}}, 15, "q: NaN b"},
		"the first query stays":     {[]read{{samples: noA}, {after: 15, expression: "other", samples: noB}}, 15, "q: NaN a"},
		"until it is not repeated":  {[]read{{samples: noA}, {after: 31, expression: "other", samples: noB}}, 31, "other: NaN b"},
		"a failure counts for more": {[]read{{samples: noA}, {after: 15, expression: "other", err: failed(ReasonRejected, "x")}}, 15, `other: source "p": Rejected: x`},
		"and stays":                 {[]read{{expression: "other", err: failed(ReasonRejected, "x")}, {after: 15, samples: noA}}, 15, `other: source "p": Rejected: x`},
		"in the same words":         {[]read{{err: failed(ReasonRejected, "x")}, {after: 15, err: failed(ReasonRejected, "y")}}, 15, `q: source "p": Rejected: x`},
		"another reason":            {[]read{{samples: noA}, {after: 15, samples: twice}}, 15, "q: Duplicate a"},
		"not repeated for a while":  {[]read{{samples: noA}}, 60, "q: NaN a"},
		"not repeated for long":     {[]read{{samples: noA}}, 61, ""},
		"repeated":                  {[]read{{samples: noA}, {after: 50, samples: noA}}, 110, "q: NaN a"},
		"the clock was set back":    {[]read{{samples: noA}}, -61, ""},
		"a long name":               {[]read{{samples: []Sample{sampleOf(math.NaN(), "pod", long)}}}, 0, "q: NaN " + long[:250] + "…"},
		"long labels":               {[]read{{label: "-", samples: []Sample{sampleOf(math.NaN(), "queue", long)}}}, 0, `q: NaN {queue="` + long[:242] + "…"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var tracker ProblemTracker
			for _, r := range test.reads {
				at := t0.Add(time.Duration(r.after) * time.Second)
				mq := MetricQuery{Query: testQuery("q"), ObjectLabel: "pod", Problems: &tracker}
				if r.expression != "" {
					mq.Query = testQuery(r.expression)
				}
				if r.label != "" {
					mq.ObjectLabel = strings.Trim(r.label, "-")
				}
				if r.selector != "" {
					s, err := labels.Parse(r.selector)
					if err != nil {
						t.Fatal(err)
					}
					mq.Select = s
				}
				var result *Result
				if o := (&EvaluationError{}); r.err == nil {
					result = &Result{Time: at, Samples: r.samples}
				} else if errors.As(r.err, &o) {
					o.Time = at
				}
				if _, err := mq.Values(result, r.err, r.objects...); err != r.err && r.err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, describeProblem(tracker.Current(t0.Add(time.Duration(test.at)*time.Second)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A problem expires after four intervals.
func TestQueryProblemExpiry(t *testing.T) {
	for after, want := range map[time.Duration]bool{4 * time.Minute: true, 4*time.Minute + 1: false} {
		var tracker ProblemTracker // which a look may empty
		r := MetricQuery{Query: Query{Interval: time.Minute}, ObjectLabel: "pod", Problems: &tracker}
		if _, err := r.Values(&Result{Time: t0, Samples: []Sample{sampleOf(math.NaN(), "pod", "a")}}, nil); err != nil {
			t.Fatal(err)
		}
		if got := tracker.Current(t0.Add(after)) != nil; got != want {
			t.Errorf("it is reported after %s: %t", after, got)
		}
	}
}

// Without a problem nothing is allocated, also while another query has one.
func TestProblemTrackerAllocations(t *testing.T) {
	var tracker ProblemTracker
	r := MetricQuery{Query: testQuery("q"), ObjectLabel: "pod", Problems: &tracker}
	none, one := &Result{Time: t0}, &Result{Time: t0, Samples: []Sample{sampleOf(1, "pod", "a")}}
	names := []string{"a"}
	nothing, value := r.read(none, names), r.read(one, names)
	note := func() {
		tracker.observe(&r, none, nil, nothing, names)
		tracker.observe(&r, one, nil, value, names)
	}
	if n := testing.AllocsPerRun(10, note); n != 0 {
		t.Errorf("%g allocations", n)
	}
	other := MetricQuery{Query: testQuery("other"), ObjectLabel: "pod", Problems: &tracker}
	if _, err := other.Values(&Result{Time: t0, Samples: []Sample{sampleOf(math.NaN(), "pod", "a")}}, nil); err != nil || tracker.Current(t0) == nil {
		t.Fatal(err, tracker.Current(t0))
	}
	if n := testing.AllocsPerRun(10, note); n != 0 {
		t.Errorf("%g allocations while another query has a problem", n)
	}
}

// A query that was not evaluated, or whose client did not wait, has no problem.
func TestNoQueryProblemWithoutEvaluation(t *testing.T) {
	breaker := circuitBreaker{failure: &Failure{Source: "p", Reason: ReasonTimeout, Message: "query timed out"}}
	rejected := &EvaluationError{Failure: failureOf("p", breaker.rejection()), Time: t0}
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		s.latency = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, left := f.Query(ctx, testQuery("q"))
		for name, err := range map[string]error{"rejected": rejected, "left": left} {
			var tracker ProblemTracker
			r := MetricQuery{Query: testQuery("q"), Problems: &tracker}
			if _, err := r.Values(nil, err); reasonOf(err) != ReasonTimeout {
				t.Fatalf("%s: %v", name, err)
			}
			if s := tracker.problem.Load(); s != nil {
				t.Errorf("%s: %s", name, describeProblem(s))
			}
		}
	})
}

// Watches re-read a metric if its MetricQuery changes, but not for its Problems.
func TestMetricQueryEqual(t *testing.T) {
	a := &MetricQuery{Query: testQuery("q"), Labels: map[string]string{"a": "b"}, Problems: &ProblemTracker{}}
	b := &MetricQuery{Query: testQuery("q"), Labels: map[string]string{"a": "b"}, Problems: &ProblemTracker{}}
	b.Problems.problem.Store(&Problem{})
	if !a.Equal(b) {
		t.Error("Problems matter")
	}
	if b.NaNAsZero = true; a.Equal(b) {
		t.Error("how it is read does not matter")
	}
}

// Clients choose the length of an expression, and there may be many rules.
func TestQueryProblemKeepsNoLongTexts(t *testing.T) {
	var tracker ProblemTracker
	long := strings.Repeat("x", 1<<20)
	read := func(after time.Duration, expression string, err error) {
		r := MetricQuery{Query: testQuery(expression), ObjectLabel: "pod", Problems: &tracker}
		_, _ = r.Values(&Result{Time: t0.Add(after)}, err)
	}
	read(0, long+"a", &EvaluationError{Failure: &Failure{Source: "p", Reason: ReasonRejected, Message: "no"}, Time: t0})
	if s := tracker.Current(t0); s == nil || len(s.Query.Expression) > 100 {
		t.Fatalf("kept: %+v", s)
	}
	read(time.Second, long+"b", nil)
	if tracker.Current(t0) == nil {
		t.Error("another long query that is well has cleared it")
	}
	read(time.Second, long+"a", nil)
	if s := tracker.Current(t0); s != nil {
		t.Errorf("kept, though it is well: %+v", s)
	}
	read(0, long+"a", &EvaluationError{Failure: &Failure{Source: "p", Reason: ReasonRejected, Message: "no"}, Time: t0})
	tracker.Current(t0.Add(time.Hour))
	if s := tracker.problem.Load(); s != nil {
		t.Errorf("kept for ever: %+v", s)
	}
}
