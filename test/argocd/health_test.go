// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package argocd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const customization = "../../config/argocd/resource_customizations/metricsbackend.io/MetricsBackend"

// tests is health_test.yaml, in the layout of Argo CD's own resource_customizations.
type tests struct {
	Tests []struct {
		HealthStatus Health `json:"healthStatus"`
		InputPath    string `json:"inputPath"`
	} `json:"tests"`
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(customization, path))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(body, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// The check says of each object of testdata what health_test.yaml does.
func TestHealth(t *testing.T) {
	check, err := os.ReadFile(filepath.Join(customization, "health.lua"))
	if err != nil {
		t.Fatal(err)
	}
	var table tests
	read(t, "health_test.yaml", &table)
	used := map[string]bool{}
	for _, tc := range table.Tests {
		t.Run(tc.InputPath, func(t *testing.T) {
			used[tc.InputPath] = true
			// Objects that no kube-apiserver would store prove nothing.
			read(t, tc.InputPath, &v1alpha1.MetricsBackend{})
			var object map[string]any
			read(t, tc.InputPath, &object)
			got, err := Run(string(check), object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.HealthStatus, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	files, err := filepath.Glob(filepath.Join(customization, "testdata/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if path := "testdata/" + filepath.Base(file); !used[path] {
			t.Errorf("health_test.yaml does not name %s", path)
		}
	}
}

// What Argo CD would refuse, or show as Unknown, is an error.
func TestRunRefuses(t *testing.T) {
	cases := map[string]struct{ check, want string }{
		"syntax":         {"return {", "run the health check"},
		"runtime":        {"return {status = obj.status.nothing.there}", "run the health check"},
		"no table":       {"return 1", "returned number, not a table"},
		"unknown status": {`return {status = "Fine", message = "x"}`, `status "Fine"`},
		"no message":     {`return {status = "Healthy"}`, "no message"},
		"endless":        {"while true do end", "run the health check"},
		"outside":        {`return {status = "Healthy", message = os.getenv("HOME")}`, "run the health check"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Run(tc.check, map[string]any{"status": map[string]any{}})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}
