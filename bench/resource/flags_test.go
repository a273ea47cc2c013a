// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestContestants(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		want      []contestant
	}{
		"default": {
			arguments: []string{"--metrics-server", "m"},
			want:      []contestant{{"metrics-server", kindMetricsServer, "m"}, {"serving", kindServing, "../bin/serving"}, {"bare", kindBare, ""}},
		},
		"builds": {
			arguments: []string{"--metrics-server", "m", "--serving", "before=/a", "--serving", "after=/b"},
			want:      []contestant{{"metrics-server", kindMetricsServer, "m"}, {"before", kindServing, "/a"}, {"after", kindServing, "/b"}, {"bare", kindBare, ""}},
		},
		"serving alone": {
			arguments: []string{"--contestants", "serving"},
			want:      []contestant{{"serving", kindServing, "../bin/serving"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := parse(tc.arguments)
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.field()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(contestant{})); diff != "" {
				t.Errorf("contestants (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScale(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments     []string
		nodes, rounds int
		skips         bool
	}{
		"default":        {nil, 1000, 5, false},
		"small":          {[]string{"--scale", "small"}, 100, 2, true},
		"small, changed": {[]string{"--rounds", "9", "--once", "", "--scale", "small"}, 100, 9, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := parse(append(tc.arguments, "--metrics-server", "m"))
			if err != nil {
				t.Fatal(err)
			}
			if f.skips(onceAges, 0) || f.skips(onceAges, 1) != tc.skips {
				t.Errorf("ages are left out of the second round: %t, want %t", f.skips(onceAges, 1), tc.skips)
			}
			if f.nodes != tc.nodes || f.rounds != tc.rounds {
				t.Errorf("%d nodes and %d rounds, want %d and %d", f.nodes, f.rounds, tc.nodes, tc.rounds)
			}
		})
	}
}

func TestStandIn(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		want      bool
	}{
		"1,000 nodes":                  {nil, false},
		"5,000 nodes":                  {[]string{"--nodes", "5000"}, true},
		"5,000 nodes, few pods":        {[]string{"--nodes", "5000", "--pods-per-node", "3"}, false},
		"5,000 nodes, kube-apiserver":  {[]string{"--nodes", "5000", "--apiserver", "real"}, false},
		"1,000 nodes, not that server": {[]string{"--apiserver", "memory"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := parse(append(tc.arguments, "--contestants", "bare"))
			if err != nil {
				t.Fatal(err)
			}
			if got := f.standIn(); got != tc.want {
				t.Errorf("a stand-in is used: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestInvalidFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		want      string
	}{
		"no binary":              {nil, "--metrics-server is required"},
		"unknown contestant":     {[]string{"--contestants", "heapster"}, "must be"},
		"two of a name":          {[]string{"--contestants", "serving", "--serving", "/a", "--serving", "/b"}, "different name"},
		"unknown scale":          {[]string{"--scale", "tiny"}, "--scale"},
		"too short":              {[]string{"--contestants", "bare", "--interval", "5s"}, "--interval"},
		"unknown part":           {[]string{"--contestants", "bare", "--once", "lists"}, "--once"},
		"unknown API server":     {[]string{"--contestants", "bare", "--apiserver", "etcd"}, "--apiserver"},
		"unknown scenario":       {[]string{"--contestants", "bare", "--scenario", "sick"}, "--scenario"},
		"no rounds of scenarios": {[]string{"--contestants", "bare", "--scenario-rounds", "0"}, "positive"},
		"no rounds":              {[]string{"--contestants", "bare", "--rounds", "0"}, "positive"},
		"an argument":            {[]string{"--contestants", "bare", "all"}, "unexpected"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(tc.arguments); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}
