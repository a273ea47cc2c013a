// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	of := func(object, name string, cpu, memory int64) sample {
		return sample{id: id{object: object, name: name}, usage: usage{cpu, memory}, at: now}
	}
	tab := newTable()
	tab.apply(change{object: "a", samples: []sample{of("a", "x", 1, 9), of("a", "y", 5, 5)}})
	tab.apply(change{object: "b", samples: []sample{of("b", "z", 3, 7)}})
	names := func(by order) []string {
		var out []string
		for _, r := range tab.sorted(by) {
			out = append(out, r.id.name)
		}
		return out
	}
	for by, want := range map[order][]string{byName: {"x", "y", "z"}, byCPU: {"y", "z", "x"}, byMemory: {"x", "z", "y"}} {
		if diff := cmp.Diff(want, names(by)); diff != "" {
			t.Errorf("by %s: %s", by, diff)
		}
	}
	// A container ended, another came, and the pod's other one goes on.
	tab.apply(change{object: "a", samples: []sample{of("a", "y", 6, 5), of("a", "w", 1, 1)}})
	if diff := cmp.Diff([]string{"w", "y", "z"}, names(byName)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int64{5, 6}, tab.rows[id{object: "a", name: "y"}].cpus); diff != "" {
		t.Error(diff)
	}
	tab.apply(change{object: "a", last: []sample{of("a", "y", 6, 5)}})
	tab.apply(change{object: "b"})
	if len(tab.rows)+len(tab.objects) != 0 || !tab.newest().IsZero() {
		t.Errorf("left over: %v %v", tab.rows, tab.objects)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	tab := newTable()
	for i := range int64(1000) {
		tab.apply(change{object: "a", samples: []sample{{id{object: "a"}, usage{i, -i}, now.Add(time.Duration(i))}}})
	}
	r := tab.rows[id{object: "a"}]
	if len(r.cpus) != historyLength || cap(r.cpus) > 2*historyLength || slices.Max(r.cpus) != 999 || r.cpus[0] != 1000-historyLength {
		t.Errorf("history %v", r.cpus)
	}
}

func TestKeys(t *testing.T) {
	for typed, want := range map[string][]key{
		"":                   nil,
		"q":                  {keyQuit},
		"\x03":               {keyQuit},
		"cmn":                {keyCPU, keyMemory, keyName},
		"\x1b[A\x1b[B":       {keyUp, keyDown},
		"\x1b[5~\x1b[6~":     {keyPageUp, keyPageDown},
		"\x1b[1;5C\x1b[15~j": {keyDown}, // Ctrl-Right, F5
		"\x1b[":              nil,
		"\x1b":               nil,
		"xyz\xffg":           {keyHome},
		"\x1bOH\x1bOF":       {keyHome, keyEnd},
	} {
		if diff := cmp.Diff(want, keysOf(typed)); diff != "" {
			t.Errorf("%q: %s", typed, diff)
		}
	}
}
