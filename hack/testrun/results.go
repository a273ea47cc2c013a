// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/tiers"
)

const (
	resultsFile   = "results.json"
	durationsFile = "durations.tsv"
	// shownDurations is the number of slowest tests and steps in the summary.
	shownDurations = 20
	// maxAgain is the maximum number of tests that are run once more.
	maxAgain = 2
)

// Results are the results of one run of the suite.
type Results struct {
	Runs     []Run
	Steps    []Step
	Tests    []Test
	Measures []Measure
	Failures []Failure
}

// Run is one run of go test, for some or all tests of a part.
type Run struct {
	Part, Arguments string
	Seconds         float64
	// Ended is false while go test runs, and if it and testrun were killed.
	Ended bool
}

// Step is a command that is not a Go test.
type Step struct {
	Part, Name string
	Seconds    float64
	Failed     bool
}

// Test is a test or a subtest that has ended.
type Test struct {
	Part, Package, Name string
	Seconds             float64
	Failed, Skipped     bool
	// Again is true in a second run.
	Again bool
}

// Measure is a measured value with its bound.
type Measure struct {
	Test, Name, Got, Bound string
	Beyond                 bool
}

// Failure is a failed top-level test, or a failed package or part without one.
type Failure struct {
	Part, Package, Test string
	// Late is true if the only failures were missed deadlines.
	Late bool
	// Again is true in a second run.
	Again    bool
	Pressure string
	Output   string
}

func load(folder string) (Results, error) {
	var r Results
	content, err := os.ReadFile(filepath.Join(folder, resultsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &r)
	}
	if err != nil {
		return r, fmt.Errorf("reading the results: %w", err)
	}
	return r, nil
}

func update(folder string, change func(*Results)) error {
	r, err := load(folder)
	if err != nil {
		return err
	}
	change(&r)
	content, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding the results: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, resultsFile), content, 0o644); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

func (r *Results) add(other Results) {
	r.Tests = append(r.Tests, other.Tests...)
	r.Measures = append(r.Measures, other.Measures...)
	r.Failures = append(r.Failures, other.Failures...)
}

// took returns how long parts have taken so far.
func (r *Results) took(parts ...string) time.Duration {
	seconds := 0.0
	for _, run := range r.Runs {
		if slices.Contains(parts, run.Part) {
			seconds += run.Seconds
		}
	}
	for _, step := range r.Steps {
		if slices.Contains(parts, step.Part) {
			seconds += step.Seconds
		}
	}
	return time.Duration(seconds * float64(time.Second))
}

// again returns a pattern of the tests to run once more for each part: if they are at most maxAgain, all failed because
// of missed deadlines, and this was their first run.
func (r *Results) again() map[string]string {
	if len(r.Failures) > maxAgain || r.stepFailed() || len(r.unfinished()) > 0 {
		return nil
	}
	tests := map[string][]string{}
	for _, f := range r.Failures {
		if !f.Late || f.Again {
			return nil
		}
		tests[f.Part] = append(tests[f.Part], f.Test)
	}
	patterns := map[string]string{}
	for part, names := range tests {
		patterns[part] = tiers.Pattern(names)
	}
	return patterns
}

// require adds a failure for each part that has no finished test; for bench and release, which have none, no step.
func (r *Results) require(parts []string) {
	for _, part := range parts {
		run := slices.ContainsFunc(r.Tests, func(test Test) bool { return test.Part == part })
		if part == "bench" || part == "release" {
			run = slices.ContainsFunc(r.Steps, func(step Step) bool { return step.Part == part })
		}
		if !run {
			r.Failures = append(r.Failures, Failure{Part: part, Output: "no test of it was run"})
		}
	}
}

func (r *Results) stepFailed() bool {
	return slices.ContainsFunc(r.Steps, func(s Step) bool { return s.Failed })
}

// passedAgain reports whether a late test passed in its second run.
func (r *Results) passedAgain(f Failure) bool {
	if !f.Late || slices.ContainsFunc(r.Failures, func(other Failure) bool { return other.Again || !other.Late }) {
		return false
	}
	return slices.ContainsFunc(r.Tests, func(test Test) bool {
		return test.Again && test.Part == f.Part && test.Package == f.Package && test.Name == f.Test && !test.Failed && !test.Skipped
	})
}

// passed reports whether there were tests, each run of go test ended, and every failed test passed in its second run.
func (r *Results) passed() bool {
	if len(r.Tests) == 0 || r.stepFailed() || len(r.unfinished()) > 0 {
		return false
	}
	for _, f := range r.Failures {
		if !r.passedAgain(f) {
			return false
		}
	}
	return true
}

// unfinished returns the runs of go test that started but did not end.
func (r *Results) unfinished() []Run {
	return slices.DeleteFunc(slices.Clone(r.Runs), func(run Run) bool { return run.Ended })
}

// duration is a line of the table of durations.
type duration struct {
	seconds              float64
	part, kind, of, name string
	topLevel             bool
}

// durations returns the steps and tests that took at least 0.1 s, slowest first.
func (r *Results) durations() []duration {
	var all []duration
	for _, s := range r.Steps {
		all = append(all, duration{seconds: s.Seconds, part: s.Part, kind: "step", of: "-", name: s.Name, topLevel: true})
	}
	for _, t := range r.Tests {
		all = append(all, duration{seconds: t.Seconds, part: t.Part, kind: "test", of: t.Package, name: t.Name,
			topLevel: !strings.Contains(t.Name, "/")})
	}
	all = slices.DeleteFunc(all, func(d duration) bool { return d.seconds < 0.1 })
	slices.SortStableFunc(all, func(a, b duration) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), strings.Compare(a.name, b.name))
	})
	return all
}

func (r *Results) writeDurations(folder string) error {
	var b strings.Builder
	b.WriteString("seconds\tpart\tkind\tpackage\tname\n")
	for _, d := range r.durations() {
		fmt.Fprintf(&b, "%.1f\t%s\t%s\t%s\t%s\n", d.seconds, d.part, d.kind, d.of, d.name)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("writing the durations: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, durationsFile), []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("writing the durations: %w", err)
	}
	return nil
}

// print writes the summary, with the failures at the end.
func (r *Results) print(out io.Writer, folder string) {
	_, _ = fmt.Fprintf(out, "\n  What took longest (all of it: %s):\n", filepath.Join(folder, durationsFile))
	shown := 0
	for _, d := range r.durations() {
		if d.topLevel && shown < shownDurations {
			_, _ = fmt.Fprintf(out, "  %7.1f s  %-12s %s\n", d.seconds, d.part, d.name)
			shown++
		}
	}
	_, _ = fmt.Fprint(out, "\n")
	for _, part := range tiers.Parts {
		if took := r.took(part); took > 0 {
			_, _ = fmt.Fprintf(out, "  %-12s %s\n", part, took.Round(time.Second))
		}
	}
	r.printMeasures(out)
	for _, f := range r.Failures {
		if r.passedAgain(f) {
			_, _ = fmt.Fprintf(out, "\n  FLAKED %s (%s): it missed a deadline, and passed when it was run again; load of the machine: %s\n%s",
				f.Test, f.Part, f.Pressure, indent(f.Output))
		}
	}
	failed := 0
	for _, s := range r.Steps {
		if s.Failed {
			failed++
			_, _ = fmt.Fprintf(out, "\n  FAILED %s: %s\n", s.Part, s.Name)
		}
	}
	for _, run := range r.unfinished() {
		failed++
		_, _ = fmt.Fprintf(out, "\n  FAILED %s: go test %s: it did not finish\n", run.Part, run.Arguments)
	}
	for _, f := range r.Failures {
		if r.passedAgain(f) {
			continue
		}
		failed++
		_, _ = fmt.Fprintf(out, "\n  FAILED %s: %s %s\n%s", f.Part, f.Package, f.Test, indent(f.Output))
	}
	passed := 0
	for _, t := range r.Tests {
		if !t.Failed && !strings.Contains(t.Name, "/") {
			passed++
		}
	}
	_, _ = fmt.Fprintf(out, "\n%d passed, %d failed\n", passed, failed)
}

// printMeasures writes the measures that exceed their bound, and the number of others.
func (r *Results) printMeasures(out io.Writer) {
	if len(r.Measures) == 0 {
		return
	}
	var beyond []Measure
	for _, m := range r.Measures {
		if m.Beyond {
			beyond = append(beyond, m)
		}
	}
	_, _ = fmt.Fprintf(out, "\n  Figures: %d within their bounds, %d beyond (which fails a test in `make test-soak` only)\n", len(r.Measures)-len(beyond), len(beyond))
	for _, m := range beyond {
		_, _ = fmt.Fprintf(out, "    %s: %s %s, its bound is %s\n", m.Test, m.Name, m.Got, m.Bound)
	}
}

func indent(text string) string {
	if text == "" {
		return ""
	}
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ") + "\n"
}
