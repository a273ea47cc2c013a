// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFlags(t *testing.T) {
	type settings struct {
		Field       []string
		Autoscalers []int
		Recordable  bool
	}
	contestants := []string{adapterDefaults, adapterRaised, servingName}
	autoscalers := []int{10, 100, 1000}
	for name, tc := range map[string]struct {
		arguments string
		want      settings
	}{
		"default":           {"--prometheus-adapter a", settings{contestants, autoscalers, true}},
		"explicit defaults": {"--prometheus-adapter a --metrics 10 --interval 15s", settings{contestants, autoscalers, true}},
		"more rounds":       {"--prometheus-adapter a --rounds 3", settings{contestants, autoscalers, true}},
		"other metrics":     {"--prometheus-adapter a --metrics 5", settings{contestants, autoscalers, false}},
		"other interval":    {"--prometheus-adapter a --interval 5s", settings{contestants, autoscalers, false}},
		"small":             {"--prometheus-adapter a --scale small", settings{contestants, []int{1000}, false}},
		"small, changed":    {"--prometheus-adapter a --scale small --autoscalers 5,6", settings{contestants, []int{5, 6}, false}},
		"in order":          {"--prometheus-adapter a --contestants serving,adapter", settings{[]string{adapterDefaults, servingName}, autoscalers, false}},
		"serving alone":     {"--contestants serving", settings{[]string{servingName}, autoscalers, false}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := parse(strings.Fields(tc.arguments))
			if err != nil {
				t.Fatal(err)
			}
			field, err := f.selectedContestants()
			if err != nil {
				t.Fatal(err)
			}
			got := settings{Autoscalers: f.autoscalers, Recordable: recordable(f, field)}
			for _, one := range field {
				got.Field = append(got.Field, one.name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvalidFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		arguments []string
		want      string
	}{
		"no binary":          {nil, "--prometheus-adapter is required"},
		"unknown contestant": {[]string{"--contestants", "keda"}, "must be"},
		"no contestant":      {[]string{"--contestants", ""}, "must not be empty"},
		"unknown scale":      {[]string{"--scale", "tiny"}, "--scale"},
		"no autoscalers":     {[]string{"--contestants", "serving", "--autoscalers", "10,0"}, "positive"},
		"no metrics":         {[]string{"--contestants", "serving", "--metrics", "0"}, "positive"},
		"one interval":       {[]string{"--contestants", "serving", "--intervals", "1"}, "--intervals"},
		"too short":          {[]string{"--contestants", "serving", "--interval", "5ms"}, "--interval"},
		"an argument":        {[]string{"--contestants", "serving", "all"}, "unexpected"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(tc.arguments); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}
