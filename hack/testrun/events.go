// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// event is a line of `go test -json`: see `go doc test2json` and `go help buildjson`.
type event struct {
	Time       time.Time
	Action     string
	Package    string
	Test       string
	Output     string
	Key, Value string // of Action "attr"
}

// maxOutput limits the output that is kept of a test: its end.
const maxOutput = 256 << 10

// recorder turns events into results.
type recorder struct {
	part           string
	again, verbose bool
	out            io.Writer
	packages       map[string]*packageState
	results        Results
}

// packageState is the state of a package while its tests run.
type packageState struct {
	// tests by name, including subtests. The package itself has the name "".
	tests map[string]*testState
	ended bool
	// crashed means that a panic, a data race or a dump of goroutines was printed.
	crashed bool
}

// testState is the state of a test until its package has ended.
type testState struct {
	// began is when the test started, or continued after a pause; took is how long it ran before. go test's Elapsed does
	// not include parallel subtests.
	began  time.Time
	took   time.Duration
	output strings.Builder
	failed bool
	// unsafe and late are from package outcome; pressure is the load of the machine when it was late.
	unsafe, late bool
	pressure     string
}

func newRecorder(part string, again, verbose bool, out io.Writer) *recorder {
	return &recorder{part: part, again: again, verbose: verbose, out: out, packages: map[string]*packageState{}}
}

// read records events until the reader ends, and prints other lines.
func (r *recorder) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case line == "":
		case json.Unmarshal([]byte(line), &e) != nil || e.Action == "":
			_, _ = fmt.Fprint(r.out, line)
		default:
			r.record(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the events of go test: %w", err)
		}
	}
}

// states returns the states of an event's package and test.
func (r *recorder) states(e event) (*packageState, *testState) {
	p := r.packages[e.Package]
	if p == nil {
		p = &packageState{tests: map[string]*testState{}}
		r.packages[e.Package] = p
	}
	if p.tests[e.Test] == nil {
		p.tests[e.Test] = &testState{}
	}
	return p, p.tests[e.Test]
}

func (r *recorder) record(e event) {
	p, test := r.states(e)
	switch e.Action {
	case "build-output":
		_, _ = fmt.Fprint(r.out, e.Output)
	case "run", "cont":
		test.began = e.Time
	case "pause":
		test.took += e.Time.Sub(test.began)
	case "output":
		r.output(e, p, test)
	case "attr":
		r.attribute(e, test)
	case "pass", "fail", "skip":
		test.failed = e.Action == "fail"
		if e.Test == "" {
			p.ended = true
			if test.failed {
				r.packageFailed(e.Package, p)
			}
			return
		}
		r.results.Tests = append(r.results.Tests, Test{
			Part: r.part, Package: e.Package, Name: e.Test, Failed: test.failed, Skipped: e.Action == "skip", Again: r.again,
			Seconds: (test.took + e.Time.Sub(test.began)).Seconds(),
		})
		if test.failed && !r.verbose {
			_, _ = fmt.Fprint(r.out, test.output.String())
		}
		if !test.failed {
			delete(p.tests, e.Test)
		}
	}
}

func (r *recorder) output(e event, p *packageState, test *testState) {
	if test.output.Len() > maxOutput {
		end := test.output.String()[maxOutput/2:]
		test.output.Reset()
		test.output.WriteString(end)
	}
	test.output.WriteString(e.Output)
	for _, crash := range []string{"panic: ", "fatal error: ", "SIGQUIT", "WARNING: DATA RACE"} {
		p.crashed = p.crashed || strings.HasPrefix(e.Output, crash)
	}
	switch {
	case r.verbose:
		if !slices.ContainsFunc([]string{"=== ATTR", "=== PAUSE", "=== CONT"}, func(s string) bool { return strings.HasPrefix(e.Output, s) }) {
			_, _ = fmt.Fprint(r.out, e.Output)
		}
	case e.Test == "" && (strings.HasPrefix(e.Output, "ok") || strings.HasPrefix(e.Output, "FAIL\t")):
		// Other output of a package is printed if it fails.
		_, _ = fmt.Fprint(r.out, e.Output)
	}
}

func (r *recorder) attribute(e event, test *testState) {
	switch e.Key {
	case outcome.MeasureKey:
		if fields := strings.Split(e.Value, "\t"); len(fields) == 4 {
			r.results.Measures = append(r.results.Measures, Measure{
				Test: e.Test, Beyond: fields[0] == "beyond", Name: fields[1], Got: fields[2], Bound: fields[3],
			})
		}
	case outcome.DeadlineKey:
		test.late, test.pressure = true, e.Value
	case outcome.SafetyKey:
		test.unsafe = true
	case outcome.BeginKey:
		test.began, test.took = e.Time, 0
	}
}

// packageFailed adds a failure for each top-level test that failed, or for the package if none did.
func (r *recorder) packageFailed(pkg string, p *packageState) {
	noTestFailed := true
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		if test := p.tests[name]; name != "" && !test.failed {
			// It was running when the process was killed; the output of one such test has the goroutines.
			test.failed = true
			if !r.verbose {
				_, _ = fmt.Fprint(r.out, test.output.String())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		if name == "" || strings.Contains(name, "/") || !p.tests[name].failed {
			continue
		}
		noTestFailed = false
		failure := Failure{Part: r.part, Package: pkg, Test: name, Again: r.again, Output: p.failureOutput(name)}
		failure.Late, failure.Pressure = p.late(name)
		r.results.Failures = append(r.results.Failures, failure)
	}
	if noTestFailed {
		if !r.verbose {
			_, _ = fmt.Fprint(r.out, p.tests[""].output.String())
		}
		r.results.Failures = append(r.results.Failures, Failure{
			Part: r.part, Package: pkg, Again: r.again, Output: lastLines(p.tests[""].output.String()),
		})
	}
}

// parts returns the names of a test and its subtests that did not pass, sorted.
func (p *packageState) parts(test string) []string {
	var names []string
	for name := range p.tests {
		if name == test || strings.HasPrefix(name, test+"/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// late reports whether a test only failed because of missed deadlines: each part of it that failed by itself is late,
// and none is unsafe. It also returns the load of the machine.
func (p *packageState) late(test string) (late bool, pressure string) {
	if p.crashed {
		return false, ""
	}
	names := p.parts(test)
	for _, name := range names {
		part := p.tests[name]
		if part.unsafe {
			return false, ""
		}
		bySubtest := slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, name+"/") && p.tests[other].failed })
		if !part.failed || bySubtest {
			continue
		}
		if !part.late {
			return false, ""
		}
		pressure = part.pressure
	}
	return true, pressure
}

// failureOutput returns the output of a failed test and its failed subtests.
func (p *packageState) failureOutput(test string) string {
	var b strings.Builder
	for _, name := range p.parts(test) {
		if text := lastLines(p.tests[name].output.String()); text != "" {
			fmt.Fprintf(&b, "%s\n%s", name, text)
		}
	}
	return b.String()
}

// shownLines is the number of lines of each failed test in the summary.
const shownLines = 25

// lastLines returns the last lines of a test's own output.
func lastLines(output string) string {
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool {
		return line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(strings.TrimSpace(line), "--- ")
	})
	var b strings.Builder
	if more := len(lines) - shownLines; more > 0 {
		fmt.Fprintf(&b, "    … (%d lines before)\n", more)
		lines = lines[more:]
	}
	for _, line := range lines {
		fmt.Fprintf(&b, "%.500s\n", line)
	}
	return b.String()
}
