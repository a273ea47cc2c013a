// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

func TestScenariosNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		names []string
		want  []string
		err   string
	}{
		"one":             {names: []string{"slow-1"}, want: []string{"slow-1"}},
		"in order":        {names: []string{"slow-1", "healthy"}, want: []string{"healthy", "slow-1"}},
		"twice":           {names: []string{"healthy", "healthy"}, want: []string{"healthy"}},
		"all":             {names: []string{"all"}, want: []string{"healthy", "lognormal", "failing-1", "failing-10", "hanging-1", "hanging-10", "slow-1", "slow-10"}},
		"all and unknown": {names: []string{"all", "sick"}, err: `--scenario "sick": must be healthy, `},
		"none":            {err: "must name one"},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := scenariosNamed(tc.names)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range all {
				got = append(got, s.name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("scenarios (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAffected(t *testing.T) {
	for name, tc := range map[string]struct {
		percent, nodes int
		want           []int
	}{
		"nobody":            {0, 100, nil},
		"one of a hundred":  {1, 100, []int{0}},
		"evenly spread":     {10, 50, []int{0, 10, 20, 30, 40}},
		"at least one":      {1, 10, []int{0}},
		"to the nearest":    {10, 16, []int{0, 8}},
		"one of a thousand": {1, 200, []int{0, 100}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, scenario{percent: tc.percent}.affected(tc.nodes)); diff != "" {
				t.Errorf("affected nodes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestsExpectHealthyNodes(t *testing.T) {
	type counts struct{ Want, Most int }
	for name, tc := range map[string]struct {
		scenario string
		all, get counts
		paths    int
	}{
		"healthy":   {scenario: healthy, all: counts{60, 60}, get: counts{1, 1}, paths: 20},
		"lognormal": {scenario: "lognormal", all: counts{58, 60}, get: counts{1, 1}, paths: 20},
		"faulty":    {scenario: "hanging-10", all: counts{54, 60}, get: counts{1, 1}, paths: 18},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := fleet.New(fleet.Options{Nodes: 20, PodsPerNode: 3})
			if err != nil {
				t.Fatal(err)
			}
			named, err := scenariosNamed([]string{tc.scenario})
			if err != nil {
				t.Fatal(err)
			}
			well, err := named[0].apply(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range newRequests(f, well, named[0]) {
				switch r.figure {
				case listJSON:
					if diff := cmp.Diff(tc.all, counts{r.want, r.most}); diff != "" {
						t.Errorf("pods in a list (-want +got):\n%s", diff)
					}
				case getPod:
					if diff := cmp.Diff(tc.get, counts{r.want, r.most}); diff != "" {
						t.Errorf("pods of a GET (-want +got):\n%s", diff)
					}
					if len(r.paths) != tc.paths {
						t.Errorf("GETs of %d pods, want one of each of %d healthy nodes", len(r.paths), tc.paths)
					}
				}
			}
		})
	}
}

func TestScenarioNeedsAHealthyNode(t *testing.T) {
	f, err := fleet.New(fleet.Options{Nodes: 1, PodsPerNode: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := faulty("failing", 1, "", fleet.Fault{Kind: fleet.InternalError}).apply(f); err == nil {
		t.Error("no error although the only kubelet has a fault")
	}
}
