// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const monitoring = "../../config/monitoring"

// The files that Grafana and Prometheus get from the chart are those of config/monitoring.
func TestMonitoringFiles(t *testing.T) {
	objects := mustRender(t, "{dashboard: {enabled: true}, scrape: {enabled: true}}")
	for file, in := range map[string]struct{ object, key string }{
		"dashboard.json":         {"ConfigMap " + namespace + "/metrics-backend-dashboard", "metrics-backend.json"},
		"scrape/prometheus.yaml": {"ConfigMap monitoring/metrics-backend-scrape", "prometheus.yaml"},
	} {
		t.Run(file, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join(monitoring, file))
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := unstructured.NestedString(objects[in.object].Object, "data", in.key)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
				t.Errorf("run make generate and commit the result (-config/monitoring +chart):\n%s", diff)
			}
		})
	}
}

// So are the permissions of a Prometheus without prometheus-operator.
func TestScrapePermissions(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(monitoring, "scrape/rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string]*unstructured.Unstructured{}, map[string]*unstructured.Unstructured{}
	read(t, "scrape/rbac.yaml", string(content), want)
	objects := mustRender(t, "scrape: {enabled: true}")
	for name := range want {
		if got[name] = objects[name]; got[name] == nil {
			t.Fatalf("no %s", name)
		}
		got[name].SetLabels(nil)
	}
	if diff := cmp.Diff(plain(want), plain(got)); diff != "" {
		t.Errorf("(-config/monitoring +chart):\n%s", diff)
	}
}

// Labels of a company's rules are on every object and on every pod.
func TestCommonLabels(t *testing.T) {
	for name, object := range mustRender(t, everything) {
		if got := object.GetLabels()["cost-center"]; got != "a" {
			t.Errorf("%s: the label cost-center is %q, want a", name, got)
		}
		if object.GetKind() != "Deployment" {
			continue
		}
		if got := at(t, object.Object, "spec.template.metadata.labels.cost-center"); got != `"a"` {
			t.Errorf("%s: the label cost-center of its pods is %s, want a", name, got)
		}
	}
}
