// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// recorded returns the results of events in a package p.
func recorded(t *testing.T, again bool, events ...event) (Results, string) {
	t.Helper()
	var lines, out bytes.Buffer
	for _, e := range events {
		e.Package = "p"
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	r := newRecorder("e2e", again, false, &out)
	if err := r.read(&lines); err != nil {
		t.Fatal(err)
	}
	r.results.Runs = append(r.results.Runs, Run{Part: "e2e", Seconds: 1, Ended: true})
	return r.results, out.String()
}

func deadline(test string) event {
	return event{Action: "attr", Test: test, Key: outcome.DeadlineKey, Value: "load 9"}
}

func safety(test string) event {
	return event{Action: "attr", Test: test, Key: outcome.SafetyKey, Value: "unsafe"}
}

func ended(action, test string) event { return event{Action: action, Test: test} }

// Only tests that missed a deadline may run again, at most two in a run.
func TestWhatRunsAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		events []event
		want   map[string]string
	}{
		"all pass":          {events: []event{ended("pass", "TestA"), ended("pass", "")}},
		"missed a deadline": {events: []event{deadline("TestA"), ended("fail", "TestA"), ended("fail", "")}, want: map[string]string{"e2e": "^(TestA)$"}},
		"a plain failure":   {events: []event{ended("fail", "TestA"), ended("fail", "")}},
		"unsafe":            {events: []event{safety("TestA"), ended("fail", "TestA"), ended("fail", "")}},
		"unsafe afterward":  {events: []event{deadline("TestA"), safety("TestA"), ended("fail", "TestA"), ended("fail", "")}},
		"a subtest missed a deadline": {
			events: []event{deadline("TestA/x"), ended("fail", "TestA/x"), ended("fail", "TestA"), ended("fail", "")},
			want:   map[string]string{"e2e": "^(TestA)$"},
		},
		"a subtest waited, another failed": {
			events: []event{deadline("TestA/x"), ended("fail", "TestA/x"), ended("fail", "TestA/y"), ended("fail", "TestA"), ended("fail", "")},
		},
		"a subtest waited, the test is unsafe": {
			events: []event{deadline("TestA/x"), ended("fail", "TestA/x"), safety("TestA"), ended("fail", "TestA"), ended("fail", "")},
		},
		"a test of a longer name failed": {
			events: []event{deadline("TestA"), ended("fail", "TestA"), ended("fail", "TestAB"), ended("fail", "")},
		},
		"two missed a deadline": {
			events: []event{deadline("TestB"), ended("fail", "TestB"), deadline("TestA"), ended("fail", "TestA"), ended("fail", "")},
			want:   map[string]string{"e2e": "^(TestA|TestB)$"},
		},
		"three missed a deadline": {
			events: []event{deadline("TestA"), ended("fail", "TestA"), deadline("TestB"), ended("fail", "TestB"), deadline("TestC"), ended("fail", "TestC"), ended("fail", "")},
		},
		"a panic": {
			events: []event{deadline("TestA"), {Action: "output", Test: "TestA", Output: "panic: oh\n"}, ended("fail", "TestA"), ended("fail", "")},
		},
		"a data race": {
			events: []event{deadline("TestA"), {Action: "output", Test: "TestA", Output: "WARNING: DATA RACE\n"}, ended("fail", "TestA"), ended("fail", "")},
		},
		"the package failed": {events: []event{ended("pass", "TestA"), ended("fail", "")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results, _ := recorded(t, false, test.events...)
			got := results.again()
			if len(got) == 0 {
				got = nil
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if passed := results.passed(); passed != (name == "all pass") {
				t.Errorf("the run has passed: %t", passed)
			}
		})
	}
}

// A test that passed in its second run is reported, and the run has passed; if it failed again, the run has failed.
func TestSecondRun(t *testing.T) {
	t.Parallel()
	first := []event{
		deadline("TestA"), {Action: "output", Test: "TestA", Output: "    a_test.go:7: pods are ready: not within 1m0s: none\n"},
		ended("fail", "TestA"), ended("fail", ""),
	}
	for name, test := range map[string]struct {
		second []event
		passed bool
		says   string
	}{
		"passes":                {[]event{ended("pass", "TestA"), ended("pass", "")}, true, "FLAKED TestA (e2e): it missed a deadline, and passed when it was run again; load of the machine: load 9"},
		"waits in vain again":   {first, false, "FAILED e2e: p TestA"},
		"is unsafe":             {[]event{safety("TestA"), ended("fail", "TestA"), ended("fail", "")}, false, "FAILED e2e: p TestA"},
		"does not come to it":   {[]event{ended("fail", "")}, false, "FAILED e2e: p TestA"},
		"another passes":        {[]event{ended("pass", "TestB"), ended("pass", "")}, false, "FAILED e2e: p TestA"},
		"nothing is run at all": {nil, false, "FAILED e2e: p TestA"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results, _ := recorded(t, false, first...)
			second, _ := recorded(t, true, test.second...)
			results.add(second)
			if got := results.passed(); got != test.passed {
				t.Errorf("the run has passed: %t, want %t", got, test.passed)
			}
			if len(results.again()) > 0 && test.second != nil && len(second.Failures) > 0 {
				t.Errorf("there is a third run: %v", results.again())
			}
			var out bytes.Buffer
			results.print(&out, "folder")
			if !strings.Contains(out.String(), test.says) || !strings.Contains(out.String(), "pods are ready: not within 1m0s") {
				t.Errorf("want %q, and the first failure, in\n%s", test.says, out.String())
			}
		})
	}
}

// Failed steps and packages, and a run without tests, are failures of the run.
func TestNothingPassesUnseen(t *testing.T) {
	t.Parallel()
	good, _ := recorded(t, false, ended("pass", "TestA"), ended("pass", ""))
	step := good
	step.Steps = []Step{{Part: "unit", Name: "go vet", Failed: true}}
	killed := good
	killed.Runs = []Run{{Part: "e2e", Ended: true}, {Part: "unit"}}
	none := good
	none.Tests = nil
	missing := good
	missing.require([]string{"e2e", "unit"})
	noStep := good
	noStep.require([]string{"e2e", "release"})
	for name, results := range map[string]Results{
		"nothing was run": {}, "no test was run": none, "a step failed": step, "a run was killed": killed, "a part was not run": missing, "a part without tests has no step": noStep,
	} {
		if results.passed() {
			t.Errorf("%s, and the run has passed", name)
		}
	}
	good.Steps = append(good.Steps, Step{Part: "release", Name: "same checksums"})
	good.require([]string{"e2e", "release"})
	if !good.passed() {
		t.Error("all passed, and the run has not")
	}
}

func TestDurationsAndMeasures(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	results, _ := recorded(t, false,
		event{Action: "run", Test: "TestA", Time: at(0)}, event{Action: "pause", Test: "TestA", Time: at(2)},
		event{Action: "cont", Test: "TestA", Time: at(10)},
		event{Action: "run", Test: "TestB", Time: at(0)}, event{Action: "attr", Test: "TestB", Key: outcome.BeginKey, Time: at(9)},
		event{Action: "pass", Test: "TestB", Time: at(10)},
		event{Action: "attr", Test: "TestA", Key: outcome.MeasureKey, Value: "beyond\tlongest gap\t21s\t20s"},
		event{Action: "attr", Test: "TestA", Key: outcome.MeasureKey, Value: "within\tshortest gap\t1s\t2s"},
		event{Action: "run", Test: "TestA/x", Time: at(10)}, event{Action: "pass", Test: "TestA/x", Time: at(11)},
		event{Action: "pass", Test: "TestA", Time: at(13)}, ended("pass", ""))
	results.Steps = []Step{{Part: "unit", Name: "go vet", Seconds: 7}}
	folder := t.TempDir()
	if err := results.writeDurations(folder); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(folder, durationsFile))
	if err != nil {
		t.Fatal(err)
	}
	const want = "seconds\tpart\tkind\tpackage\tname\n7.0\tunit\tstep\t-\tgo vet\n5.0\te2e\ttest\tp\tTestA\n1.0\te2e\ttest\tp\tTestA/x\n1.0\te2e\ttest\tp\tTestB\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("durations (-want +got):\n%s", diff)
	}
	var out bytes.Buffer
	results.print(&out, folder)
	for _, text := range []string{"Figures: 1 within their bounds, 1 beyond", "TestA: longest gap 21s, its bound is 20s", "\n2 passed, 0 failed\n"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("no %q in\n%s", text, out.String())
		}
	}
}

// A part gets the time that its earlier steps and runs left; a second run, the time that all parts left.
func TestSetLimit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		part    string
		again   bool
		earlier Results
		want    time.Duration
	}{
		"the first run": {part: "e2e", want: 25 * time.Minute},
		"after a step and a run": {part: "unit", want: 28 * time.Minute, earlier: Results{
			Steps: []Step{{Part: "unit", Seconds: 60}, {Part: "build", Seconds: 600}}, Runs: []Run{{Part: "unit", Seconds: 360}, {Part: "e2e", Seconds: 60}},
		}},
		"nothing is left":               {part: "unit", want: time.Minute, earlier: Results{Runs: []Run{{Part: "unit", Seconds: 3600}}}},
		"a second run":                  {part: "e2e", again: true, want: 25 * time.Minute, earlier: Results{Runs: []Run{{Part: "e2e", Seconds: 1500}}}},
		"a second run after a slow one": {part: "e2e", again: true, want: 4 * time.Minute, earlier: Results{Runs: []Run{{Part: "unit", Seconds: 3000}, {Part: "e2e", Seconds: 1800}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := partRun{results: t.TempDir(), name: test.part, tier: "test", again: test.again}
			if err := update(p.results, func(r *Results) { *r = test.earlier }); err != nil {
				t.Fatal(err)
			}
			if err := p.setLimit(); err != nil || p.limit != test.want {
				t.Errorf("got %s, %v, want %s", p.limit, err, test.want)
			}
		})
	}
	if err := (&partRun{results: t.TempDir(), name: "none", tier: "test"}).setLimit(); err == nil {
		t.Error("a part that does not exist has a limit")
	}
}

// With a real go test: output of failed tests is printed, the limit prints goroutines, results are recorded.
func TestRun(t *testing.T) {
	t.Parallel()
	module := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"a_test.go": `package m

import (
	"testing"
	"time"
)

func TestPasses(t *testing.T) { t.Log("said by what passes") }
func TestLate(t *testing.T)   { t.Attr("deadline", "load 1"); t.Fatal("not within a minute") }
func TestHangs(t *testing.T)  { <-time.After(time.Hour) }
`,
	} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(limit time.Duration, arguments ...string) (Results, string, error) {
		p := partRun{results: t.TempDir(), name: "unit", dir: module, limit: limit, arguments: arguments}
		var out bytes.Buffer
		err := p.test(t.Context(), &out)
		results, failed := load(p.results)
		if failed != nil {
			t.Fatal(failed)
		}
		return results, out.String(), err
	}
	if results, out, err := run(time.Minute, "-run", "TestPasses", "."); err != nil || !results.passed() || !strings.Contains(out, "ok") || strings.Contains(out, "said by") {
		t.Errorf("what passes: %v, passed %t:\n%s", err, results.passed(), out)
	}
	if results, out, err := run(time.Minute, "-run", "TestPasses|TestLate", "."); err == nil || results.passed() || !strings.Contains(out, "not within a minute") || results.again()["unit"] != "^(TestLate)$" {
		t.Errorf("what is late: %v, again %v:\n%s", err, results.again(), out)
	}
	if results, out, err := run(time.Minute, "./none"); err == nil || results.passed() || len(results.again()) > 0 {
		t.Errorf("what does not build: %v, %+v:\n%s", err, results.Failures, out)
	}
	// The test binary is compiled by now.
	results, out, err := run(12*time.Second, "-run", "TestHangs", ".")
	if err == nil || results.passed() || len(results.again()) > 0 || !strings.Contains(out, "TestHangs") || !strings.Contains(out, "goroutine ") {
		t.Errorf("what hangs: %v, %+v:\n%s", err, results.Failures, out)
	}
}
