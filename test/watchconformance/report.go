// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// Outcome of a check.
type Outcome string

const (
	// Passed is a verdict.
	Passed Outcome = "pass"
	// Failed is the other.
	Failed Outcome = "FAIL"
	// Unseen means that what the check looks for did not happen: no verdict.
	Unseen Outcome = "not seen"
	// NotServed means that there is no watch to be checked.
	NotServed Outcome = "not served"
	// NotAsked means that an option is needed for it.
	NotAsked Outcome = "not asked"
)

// Result of one check of one resource of one version.
type Result struct {
	Check    string
	Level    Level
	Line     string // of the Watch table in docs/design.md
	Source   string
	Version  string
	Resource string
	Outcome  Outcome
	Why      string
	Took     time.Duration
}

// Report of a run.
type Report struct {
	Group, Server string
	Versions      []string
	// Served says that discovery names the watch verb for some resource.
	Served  bool
	Results []Result
	Took    time.Duration

	began time.Time
	mu    sync.Mutex
}

func (r *Report) add(result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Results = append(r.Results, result)
}

// finish orders the results by level, and as the catalogue has them.
func (r *Report) finish() {
	r.Took = time.Since(r.began)
	slices.SortFunc(r.Results, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Check, b.Check),
			cmp.Compare(a.Version, b.Version), cmp.Compare(a.Resource, b.Resource))
	})
}

// With returns the results of an outcome, up to a level.
func (r *Report) With(outcome Outcome, upTo Level) []Result {
	var some []Result
	for _, result := range r.Results {
		if result.Outcome == outcome && result.Level <= upTo {
			some = append(some, result)
		}
	}
	return some
}

// String is the report as a table. Results of a check that are alike share a line.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "watch of %s (%s) at %s\n\n", r.Group, strings.Join(r.Versions, ", "), r.Server)
	// A strings.Builder takes all: nothing written to it fails.
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "LEVEL\tLINE\tCHECK\tOF\tRESULT\tWHY")
	counts := map[Outcome]int{}
	for _, group := range alike(r.Results) {
		first := group[0]
		counts[first.Outcome] += len(group)
		of := make([]string, len(group))
		for i, result := range group {
			of[i] = result.Version + " " + result.Resource
		}
		why := strings.ReplaceAll(first.Why, "\n", " ")
		if first.Outcome == Failed {
			why += " (" + first.Source + ")"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", first.Level, first.Line, first.Check, strings.Join(of, ", "), first.Outcome, why)
	}
	_ = w.Flush()
	var sums []string
	for _, outcome := range []Outcome{Passed, Failed, Unseen, NotServed, NotAsked} {
		if n := counts[outcome]; n > 0 {
			sums = append(sums, fmt.Sprintf("%d %s", n, strings.ToLower(string(outcome))))
		}
	}
	fmt.Fprintf(&b, "\n%s, in %s\n", strings.Join(sums, ", "), r.Took.Round(100*time.Millisecond))
	return b.String()
}

// alike groups neighbours of one check, outcome and reason.
func alike(results []Result) [][]Result {
	var groups [][]Result
	for _, result := range results {
		if n := len(groups); n > 0 {
			last := groups[n-1][0]
			if last.Check == result.Check && last.Outcome == result.Outcome && last.Why == result.Why {
				groups[n-1] = append(groups[n-1], result)
				continue
			}
		}
		groups = append(groups, []Result{result})
	}
	return groups
}
