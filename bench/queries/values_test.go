// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	for name, tc := range map[string]struct {
		decode func([]byte) (map[string]string, error)
		body   string
		want   map[string]string
		failed bool
	}{
		"custom metrics": {
			decode: decodeCustom,
			body: `{"items":[{"describedObject":{"kind":"Pod","namespace":"n","name":"a","apiVersion":"/v1"},"metric":{"name":"m"},"value":"1500m"},` +
				`{"describedObject":{"kind":"Pod","namespace":"n","name":"b","apiVersion":"v1"},"metric":{"name":"m"},"value":"2"}]}`,
			want: map[string]string{"Pod n/a, m": "1500m", "Pod n/b, m": "2000m"},
		},
		"external metrics": {
			decode: decodeExternal,
			body:   `{"items":[{"metricName":"m","metricLabels":{"b":"2","a":"1"},"value":"1k"},{"metricName":"m","metricLabels":null,"value":"0"}]}`,
			want:   map[string]string{`m{"a":"1","b":"2"}`: "1000000m", "mnull": "0m"},
		},
		"none":     {decode: decodeCustom, body: `{"items":[]}`, want: map[string]string{}},
		"not JSON": {decode: decodeExternal, body: "no", failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.decode([]byte(tc.body))
			if (err != nil) != tc.failed {
				t.Fatalf("error %v, want one: %t", err, tc.failed)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDifference(t *testing.T) {
	for name, tc := range map[string]struct {
		first, values map[string]string
		want          string
	}{
		"equal":   {map[string]string{"a": "1m"}, map[string]string{"a": "1m"}, ""},
		"changed": {map[string]string{"a": "1m", "b": "1m"}, map[string]string{"a": "1m", "b": "2m"}, `the value of b is "2m", of the first contestant "1m"`},
		"missing": {map[string]string{"a": "1m"}, map[string]string{}, `the value of a is "", of the first contestant "1m"`},
		"added":   {map[string]string{}, map[string]string{"a": "1m"}, `the value of a is "1m", of the first contestant ""`},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, difference(tc.first, tc.values)); diff != "" {
				t.Errorf("difference (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCompared(t *testing.T) {
	for name, tc := range map[string]struct {
		flags               flags
		metrics, selections int
	}{
		"default": {flags{metrics: 100, selected: 10}, 20, 10},
		"few":     {flags{metrics: 3, selected: 2}, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			metrics, selections := map[int]bool{}, map[int]bool{}
			for _, autoscaler := range compared(&tc.flags) {
				metric, selection := tc.flags.target(autoscaler)
				metrics[metric], selections[selection] = true, true
			}
			if len(metrics) != tc.metrics || len(selections) != tc.selections {
				t.Errorf("%d metrics and %d selections, want %d and %d", len(metrics), len(selections), tc.metrics, tc.selections)
			}
		})
	}
}
