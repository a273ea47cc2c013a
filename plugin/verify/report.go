// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package verify checks whether a cluster's metrics.k8s.io is as KEP-5207 wants it
// after an upgrade, a rollback or a migration, whoever serves it.
package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is how a check ended.
type Outcome string

// Outcomes.
const (
	// Pass: it is as it should be.
	Pass Outcome = "pass"
	// Warn: something an administrator should know, which fails nothing.
	Warn Outcome = "warn"
	// Skip: there was nothing to look at, or a flag left it out.
	Skip Outcome = "skip"
	// Fail: it is not as it should be.
	Fail Outcome = "fail"
	// Error: it could not be looked at.
	Error Outcome = "error"
)

// Result is one line: what was looked at, and what to do.
type Result struct {
	// ID of the check; it stays the same between releases.
	ID string `json:"id"`
	// Subject is the object that was looked at.
	Subject string  `json:"subject"`
	Outcome Outcome `json:"outcome"`
	// Message says what was found.
	Message string `json:"message"`
	// Remedy says what to do.
	Remedy string `json:"remedy,omitempty"`
}

// Report is the answer of one run.
type Report struct {
	// Cluster is kube-apiserver's address.
	Cluster string      `json:"cluster"`
	Time    metav1.Time `json:"time"`
	// Expected are the versions that should be served, best first, and ExpectedBy
	// who says so.
	Expected   []string `json:"expected"`
	ExpectedBy string   `json:"expectedBy"`
	// Outcome is Fail if a check failed, else Error if one could not be run.
	Outcome Outcome  `json:"outcome"`
	Checks  []Result `json:"checks"`
}

// count returns the number of checks with that outcome.
func (r *Report) count(outcome Outcome) int {
	n := 0
	for _, check := range r.Checks {
		if check.Outcome == outcome {
			n++
		}
	}
	return n
}

// unmet are the checks that keep the run from passing.
func (r *Report) unmet() []Result {
	return slices.DeleteFunc(slices.Clone(r.Checks), func(c Result) bool { return c.Outcome != Fail && c.Outcome != Error })
}

func (r *Report) conclude() {
	switch {
	case r.count(Fail) > 0:
		r.Outcome = Fail
	case r.count(Error) > 0:
		r.Outcome = Error
	default:
		r.Outcome = Pass
	}
}

// check looks at one thing and returns a result for each object that it saw.
type check struct {
	id    string
	looks string
	run   func(context.Context, *look) []Result
}

// checks are in the order in which a reader finds the cause before its effects.
var checks = []check{
	{"backend-conditions", "the conditions of each MetricsBackend", backendConditions},
	{"apiservice-registered", "an APIService for each expected version", apiServiceRegistered},
	{"apiservice-stale", "no APIService of another version of the group", apiServiceStale},
	{"apiservice-available", "kube-apiserver reports each available", apiServiceAvailable},
	{"apiservice-verified", "kube-apiserver verifies who answers (TLS)", apiServiceVerified},
	{"discovery-aggregated", "aggregated discovery lists exactly the expected versions as current", discoveryAggregated},
	{"discovery-group", "/apis/metrics.k8s.io lists exactly the expected versions", discoveryGroup},
	{"discovery-preferred", "the best version is the preferred one", discoveryPreferred},
	{"resources-served", "each version serves nodes and pods", resourcesServed},
	{"nodes-fresh", "each version answers nodes, with samples younger than maxAge", nodesFresh},
	{"pods-fresh", "each version answers pods, with samples younger than maxAge", podsFresh},
	{"versions-agree", "all versions tell the same of nodes", versionsAgree},
	{"hpa-active", "HorizontalPodAutoscalers by CPU or memory have ScalingActive", hpaActive},
	{"other-apis", "APIs of MetricsBackends for custom and external metrics are available and answer", otherAPIs},
	{"aggregator-available", "aggregator_unavailable_apiservice of kube-apiserver is 0", aggregatorAvailable},
}

// verify runs every check once. It fails when there is nothing to judge by.
func (l *look) verify(ctx context.Context, skip []string) (*Report, error) {
	if err := l.prepare(ctx); err != nil {
		return nil, err
	}
	report := &Report{Cluster: l.cluster.Host, Expected: l.expected, ExpectedBy: l.expectedBy}
	for _, c := range checks {
		if slices.Contains(skip, c.id) {
			report.Checks = append(report.Checks, Result{ID: c.id, Subject: c.looks, Outcome: Skip, Message: "left out by --skip"})
			continue
		}
		for _, result := range c.run(ctx, l) {
			result.ID = c.id
			if slices.Contains(skip, c.id+"="+result.Subject) {
				result.Outcome, result.Message, result.Remedy = Skip, "left out by --skip", ""
			}
			report.Checks = append(report.Checks, result)
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("interrupted: %w", err)
		}
	}
	report.Checks = append(report.Checks, unused(skip, report.Checks)...)
	report.Time = metav1.NewTime(l.cluster.Now().Truncate(time.Second))
	report.conclude()
	return report, nil
}

// unused tells of each ID=SUBJECT that left nothing out: a typing error, or a fault
// that is gone.
func unused(skip []string, checks []Result) []Result {
	var results []Result
	for _, s := range skip {
		id, subject, named := strings.Cut(s, "=")
		if named && !slices.Contains(skip, id) && !slices.ContainsFunc(checks, func(r Result) bool { return r.ID == id && r.Subject == subject }) {
			r := warn(subject, "--skip names a line that there is not", "take it out, or correct it")
			r.ID = id
			results = append(results, r)
		}
	}
	return results
}

func pass(subject, format string, args ...any) Result {
	return Result{Subject: subject, Outcome: Pass, Message: fmt.Sprintf(format, args...)}
}

func skip(subject, format string, args ...any) Result {
	return Result{Subject: subject, Outcome: Skip, Message: fmt.Sprintf(format, args...)}
}

func fail(subject, message, remedy string) Result {
	return Result{Subject: subject, Outcome: Fail, Message: message, Remedy: remedy}
}

func warn(subject, message, remedy string) Result {
	return Result{Subject: subject, Outcome: Warn, Message: message, Remedy: remedy}
}

// listed is versions as a reader wants them.
func listed(versions []string) string {
	if len(versions) == 0 {
		return "none"
	}
	return strings.Join(versions, ", ")
}
