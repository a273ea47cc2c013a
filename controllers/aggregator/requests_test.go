// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestDiscovers(t *testing.T) {
	external := schema.GroupVersion{Group: "external.metrics.k8s.io", Version: "v1beta1"}
	const path = "/apis/external.metrics.k8s.io/v1beta1"
	cases := map[string]struct {
		code int
		body string
		err  string
	}{
		"with metrics":    {code: 200, body: `{"groupVersion":"external.metrics.k8s.io/v1beta1","resources":[{"name":"queue"}]}`},
		"without":         {code: 200, body: `{"groupVersion":"external.metrics.k8s.io/v1beta1","resources":[]}`},
		"not there":       {code: 404, err: "GET " + path},
		"unavailable":     {code: 503, err: "GET " + path + ": the server is currently unable to handle the request"},
		"of another":      {code: 200, body: `{"groupVersion":"metrics.k8s.io/v1"}`, err: `the answer is discovery of "metrics.k8s.io/v1"`},
		"of nothing":      {code: 200, body: `{}`, err: `the answer is discovery of ""`},
		"no JSON":         {code: 200, body: `<html>`, err: "decode the answer of " + path},
		"an empty answer": {code: 200, err: "decode the answer of " + path},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			plane := newControlPlane(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != path {
					t.Errorf("asked for %s", r.URL.Path)
				}
				w.WriteHeader(tc.code)
				_, _ = w.Write([]byte(tc.body))
			})
			switch err := plane.client(t).Discovers(t.Context(), external); {
			case tc.err == "" && err != nil:
				t.Errorf("error %v", err)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("error %v, want %q in it", err, tc.err)
			}
		})
	}
}
