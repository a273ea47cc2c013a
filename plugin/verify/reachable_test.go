// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"net/http"
	"strings"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

func TestBeforeAdoption(t *testing.T) {
	const readyz = "/api/v1/namespaces/metrics-backend-system/services/https:metrics-serving-cluster:https/proxy/readyz"
	first := func(w *plugincluster.World) *v1alpha1.MetricsBackend { return &w.Backends[0] }
	cases := map[string]struct {
		change func(*plugincluster.World)
		code   int
		want   []string
	}{
		"reached": {code: output.OK, want: []string{"pass", "serving-reachable", "kube-apiserver reaches the pods of Service metrics-backend-system/metrics-serving-cluster at port 10250"}},
		"not reached": {
			change: func(w *plugincluster.World) { w.Codes[readyz] = http.StatusServiceUnavailable }, code: output.NotMet,
			want: []string{"FAIL", "kube-apiserver does not reach the pods", "kube-apiserver must be able to open TCP connections to port 10250"},
		},
		"no permission": {
			change: func(w *plugincluster.World) { w.Codes[readyz] = http.StatusForbidden }, code: output.NotRun,
			want: []string{readyz, "run it as a user who may"},
		},
		"no pod is ready": {
			change: func(w *plugincluster.World) { first(w).Status.Serving.ReadyReplicas = 0 }, code: output.NotMet,
			want: []string{"it has no ready pod", "next: kubectl metrics status cluster\n"},
		},
		"no status":         {change: func(w *plugincluster.World) { first(w).Status.Serving = nil }, code: output.NotMet, want: []string{"it has no ready pod"}},
		"spec.existing":     {change: func(w *plugincluster.World) { first(w).Spec.Existing = &v1alpha1.ExistingSpec{} }, code: output.OK, want: []string{"spec.existing names an implementation"}},
		"no MetricsBackend": {change: func(w *plugincluster.World) { w.Backends = nil }, code: output.NotMet, want: []string{"there is none", "create one: its pods start"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			world := plugincluster.Healthy(plugincluster.Authority(t, plugincluster.Now.Add(10*years)))
			world.Codes = map[string]int{readyz: http.StatusOK}
			if tc.change != nil {
				tc.change(world)
			}
			got, code := verifyText(t, plugincluster.Start(t, world), func(o *options) { o.beforeAdoption = true })
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			for _, part := range tc.want {
				if !strings.Contains(got, part) {
					t.Errorf("no %q in:\n%s", part, got)
				}
			}
			if strings.Contains(got, "apiservice-registered") {
				t.Errorf("other checks were made:\n%s", got)
			}
		})
	}
}
