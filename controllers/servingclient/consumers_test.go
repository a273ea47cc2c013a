// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestAskForConsumers(t *testing.T) {
	cases := map[string]struct {
		status int
		body   string
		want   *v1alpha1.ConsumerReport
		err    string
	}{
		"a report": {
			status: http.StatusOK,
			body: `{"consumers":[{"version":"v1.metrics.k8s.io","userAgent":"kubectl","user":"jane","lastSeen":"2026-11-01"}],` +
				`"others":{"v1.metrics.k8s.io":3},"fieldOfTheFuture":true}`,
			want: &v1alpha1.ConsumerReport{
				Consumers: []v1alpha1.ConsumerStatus{{Version: "v1.metrics.k8s.io", UserAgent: "kubectl", User: "jane", LastSeen: "2026-11-01"}},
				Others:    map[string]int{"v1.metrics.k8s.io": 3},
			},
		},
		"no report":                 {status: http.StatusNotFound, err: "ask /consumers: answered 404 Not Found"},
		"not allowed to ask yet":    {status: http.StatusForbidden, err: "ask /consumers: answered 403 Forbidden"},
		"a report that is rubbish":  {status: http.StatusOK, body: "<html>", err: "read the answer to /consumers: invalid character"},
		"a report that is too long": {status: http.StatusOK, body: `"` + strings.Repeat("x", maxBody) + `"`, err: "longer than 1048576 bytes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/apis/metrics.k8s.io/v1":
					_, _ = w.Write([]byte(resources("v1", `{"name":"nodes","kind":"NodeMetrics"}`)))
				case "/apis/metrics.k8s.io/v1/nodes":
					_, _ = w.Write([]byte(`{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1","items":[]}`))
				case v1alpha1.SourcesPath:
					_, _ = w.Write([]byte("{}"))
				case v1alpha1.ConsumersPath:
					w.WriteHeader(tc.status)
					_, _ = w.Write([]byte(tc.body))
				default:
					http.NotFound(w, r)
				}
			}))
			got, err := NewClient(nil).Probe(t.Context(), pod, []schema.GroupVersion{v1})
			if err != nil || !got.Serves[v1] {
				t.Fatalf("what the pod serves is lost: %+v, %v", got, err)
			}
			if diff := cmp.Diff(tc.want, got.Consumers); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if (got.ConsumersError != nil) != (tc.err != "") || tc.err != "" && !strings.Contains(got.ConsumersError.Error(), tc.err) {
				t.Errorf("error %v, want %q", got.ConsumersError, tc.err)
			}
		})
	}
}
