// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package verify is `kubectl metrics-backend verify`: it checks metrics.k8s.io of any implementation
// as KEP-5207 requires it after an upgrade, a rollback or a migration.
package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is the outcome of a check.
type Outcome string

// Outcomes.
const (
	// Pass: the check passed.
	Pass Outcome = "pass"
	// Warn: a problem that does not fail the run.
	Warn Outcome = "warn"
	// Skip: there was nothing to check, or --skip left it out.
	Skip Outcome = "skip"
	// Fail: the check failed.
	Fail Outcome = "fail"
	// Error: the check could not be run.
	Error Outcome = "error"
)

// Result is the result of a check for one object.
type Result struct {
	// ID of the check; it stays the same between releases.
	ID string `json:"id"`
	// Subject is the object that was checked.
	Subject string  `json:"subject"`
	Outcome Outcome `json:"outcome"`
	Message string  `json:"message"`
	// Remedy says what to do.
	Remedy string `json:"remedy,omitempty"`
	// Command is the next command to type, if there is one.
	Command string `json:"command,omitempty"`
}

// Report is the result of one run.
type Report struct {
	// Cluster is kube-apiserver's address.
	Cluster string      `json:"cluster"`
	Time    metav1.Time `json:"time"`
	// Expected are the versions that should be served, best first, and ExpectedBy is the
	// origin of this list.
	Expected   []string `json:"expected"`
	ExpectedBy string   `json:"expectedBy"`
	// Outcome is Fail if a check failed, else Error if one could not be run.
	Outcome Outcome  `json:"outcome"`
	Checks  []Result `json:"checks"`
	// command is verify or preflight.
	command string
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

// check returns a result for each object that it read.
type check struct {
	id          string
	description string
	run         func(context.Context, *snapshot) []Result
}

// checks are sorted so that causes come before their effects.
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
	{"nodes-fresh", "each version answers nodes, with samples younger than maxSampleAge", nodesFresh},
	{"pods-fresh", "each version answers pods, with samples younger than maxSampleAge", podsFresh},
	{"versions-agree", "all versions tell the same of nodes", versionsAgree},
	{"hpa-active", "HorizontalPodAutoscalers by CPU or memory have ScalingActive", hpaActive},
	{"other-apis", "APIs of MetricsBackends for custom and external metrics are available and answer", otherAPIs},
	{"aggregator-available", "aggregator_unavailable_apiservice of kube-apiserver is 0", aggregatorAvailable},
}

// preflightChecks are those of preflight.
var preflightChecks = []check{
	{"serving-reachable", "kube-apiserver reaches the serving pods of each MetricsBackend", servingReachable},
	{"nothing-lost", "the serving pods answer what the other implementation does, which nobody applies again", nothingLost},
}

// verify runs every check once. It fails if the objects of prepare cannot be read.
func (snap *snapshot) verify(ctx context.Context) (*Report, error) {
	if err := snap.prepare(ctx); err != nil {
		return nil, err
	}
	report := &Report{command: snap.command, Cluster: snap.cluster.Host, Expected: snap.expected, ExpectedBy: snap.expectedBy}
	for _, c := range snap.checks {
		if slices.Contains(snap.skip, c.id) {
			report.Checks = append(report.Checks, Result{ID: c.id, Subject: c.description, Outcome: Skip, Message: "left out by --skip"})
			continue
		}
		for _, result := range c.run(ctx, snap) {
			result.ID = c.id
			if slices.Contains(snap.skip, c.id+"="+result.Subject) {
				result = Result{ID: c.id, Subject: result.Subject, Outcome: Skip, Message: "left out by --skip"}
			}
			if result.Command != "" {
				result.Command += snap.flags
			}
			report.Checks = append(report.Checks, result)
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("interrupted: %w", err)
		}
	}
	report.Checks = append(report.Checks, unused(snap.skip, report.Checks)...)
	report.Time = metav1.NewTime(snap.cluster.Now().Truncate(time.Second))
	report.Outcome = Pass
	for _, outcome := range []Outcome{Error, Fail} {
		if report.count(outcome) > 0 {
			report.Outcome = outcome
		}
	}
	return report, nil
}

// unused returns a warning for each ID=SUBJECT of --skip that matches no result.
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

// withCommand adds the next command to type. It is not the remedy of a missing permission.
func (r Result) withCommand(command string) Result {
	if r.Outcome != Error {
		r.Command = command
	}
	return r
}

func listed(versions []string) string {
	if len(versions) == 0 {
		return "none"
	}
	return strings.Join(versions, ", ")
}
