// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestDeclared(t *testing.T) {
	cases := map[string]struct {
		bodies map[string]string
		want   *v1alpha1.DeclaredReport
		err    string
	}{
		"a report": {
			bodies: map[string]string{"/declared": `{"metrics":[{"kind":"CustomMetric","namespace":"shop","name":"a","uid":"u","generation":2,"ready":true,"value":"3","values":1}]}`},
			want: &v1alpha1.DeclaredReport{Metrics: []v1alpha1.DeclaredHealth{{
				Kind: "CustomMetric", Namespace: "shop", Name: "a", UID: "u", Generation: 2, Ready: true, Value: "3", Values: 1,
			}}},
		},
		"an image that has none": {bodies: map[string]string{}},
		"garbage":                {bodies: map[string]string{"/declared": "<html>"}, err: "read the answer to /declared: invalid character"},
		"more than any cluster's": {
			bodies: map[string]string{"/declared": `"` + strings.Repeat("x", maxDeclaredBody) + `"`}, err: "longer than 16777216 bytes",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := NewClient(nil).Declared(t.Context(), server(t, paths(tc.bodies)))
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("got %v, want %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := NewClient(nil).Declared(t.Context(), Pod{Address: "192.0.2.1:1"}); err == nil {
		t.Error("a pod is asked without any authority")
	}
}

func TestDirectory(t *testing.T) {
	d := NewDirectory()
	if _, known := d.Pods("b"); known {
		t.Error("a backend is known that nobody told of")
	}
	d.Set("b", nil)
	if pods, known := d.Pods("b"); !known || len(pods) > 0 {
		t.Errorf("got %v, %t", pods, known)
	}
	d.Set("b", []Entry{{Name: "p"}})
	if pods, _ := d.Pods("b"); len(pods) != 1 || pods[0].Name != "p" {
		t.Errorf("got %v", pods)
	}
	d.Forget("b")
	if _, known := d.Pods("b"); known {
		t.Error("it is not forgotten")
	}
}
