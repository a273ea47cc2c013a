// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestDeclared(t *testing.T) {
	cases := map[string]struct {
		bodies map[string]string
		want   []v1alpha1.DeclaredHealth
		err    string
	}{
		"a report": {
			bodies: map[string]string{"/declared": `{"metrics":[{"kind":"CustomMetric","namespace":"shop","name":"a","uid":"u","generation":2,"ready":true,"value":"3","values":1}]}`},
			want: []v1alpha1.DeclaredHealth{{
				Kind: "CustomMetric", Namespace: "shop", Name: "a", UID: "u", Generation: 2, Ready: true, Value: "3", Values: 1,
			}},
		},
		"no metrics": {bodies: map[string]string{"/declared": "{}"}},
		"fields of a later release": {
			bodies: map[string]string{"/declared": `{"at":{"a":[1]},"metrics":[{"name":"a","mood":"good"},{"name":"b"}],"end":1}`},
			want:   []v1alpha1.DeclaredHealth{{Name: "a"}, {Name: "b"}},
		},
		"no report":    {bodies: map[string]string{}, err: "ask /declared: answered 404 Not Found"},
		"another list": {bodies: map[string]string{"/declared": "[]"}, err: "read the answer to /declared: it is no report of metrics"},
		"an end too early": {
			bodies: map[string]string{"/declared": `{"metrics":[{"name":"a"},`}, want: []v1alpha1.DeclaredHealth{{Name: "a"}},
			err: "read the answer to /declared: unexpected end of JSON input",
		},
		"garbage": {bodies: map[string]string{"/declared": "<html>"}, err: "read the answer to /declared: invalid character"},
		"a metric longer than any": {
			bodies: map[string]string{"/declared": `{"metrics":[{"message":"` + strings.Repeat("x", maxDeclaredHealth) + `"}]}`},
			err:    "a metric in it takes more than 16384 bytes",
		},
		"a field longer than any": {
			bodies: map[string]string{"/declared": `{"` + strings.Repeat("x", maxDeclaredHealth) + `":1}`},
			err:    "a metric in it takes more than 16384 bytes",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []v1alpha1.DeclaredHealth
			err := NewClient(nil).Declared(t.Context(), server(t, paths(tc.bodies)), func(h v1alpha1.DeclaredHealth) { got = append(got, h) })
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Fatalf("got %v, want %q", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if err := NewClient(nil).Declared(t.Context(), Pod{Address: "192.0.2.1:1"}, nil); err == nil {
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

// TestLargeReport: the size of a report does not matter, only that of each metric's state.
func TestLargeReport(t *testing.T) {
	var body strings.Builder
	body.WriteString(`{"metrics":[`)
	const metrics = 200
	for i := range metrics {
		if i > 0 {
			body.WriteString(",\n")
		}
		fmt.Fprintf(&body, `{"namespace":"shop","name":"m%d","message":"%s"}`, i, strings.Repeat("x", 8<<10))
	}
	body.WriteString("]}\n")
	got := 0
	if err := NewClient(nil).Declared(t.Context(), server(t, paths(map[string]string{"/declared": body.String()})), func(v1alpha1.DeclaredHealth) { got++ }); err != nil || got != metrics {
		t.Errorf("%d metrics of %d in %d bytes: %v", got, metrics, body.Len(), err)
	}
}
