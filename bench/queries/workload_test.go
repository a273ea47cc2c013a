// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestPaths(t *testing.T) {
	f := &flags{metrics: 100, selected: 10}
	const (
		customAPI   = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/"
		externalAPI = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/"
	)
	for name, tc := range map[string]struct {
		autoscaler int
		want       []string
	}{
		"the first":                  {0, []string{customAPI + "load_000?labelSelector=app%3Dapp-00", externalAPI + "jobs_000?labelSelector=queue%3Dqueue-00"}},
		"the last with a new metric": {99, []string{customAPI + "load_099?labelSelector=app%3Dapp-00", externalAPI + "jobs_099?labelSelector=queue%3Dqueue-00"}},
		"the first metric again":     {100, []string{customAPI + "load_000?labelSelector=app%3Dapp-01", externalAPI + "jobs_000?labelSelector=queue%3Dqueue-01"}},
		"the first one again":        {1000, []string{customAPI + "load_000?labelSelector=app%3Dapp-00", externalAPI + "jobs_000?labelSelector=queue%3Dqueue-00"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, k := range kinds {
				got = append(got, k.path(f, tc.autoscaler))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLines(t *testing.T) {
	want := `load_000{namespace="default",pod="app-00-000"} 0.5
load_000{namespace="default",pod="app-00-001"} 1.5
jobs_000{namespace="default",queue="queue-00"} 0.25
load_001{namespace="default",pod="app-00-000"} 1000.5
load_001{namespace="default",pod="app-00-001"} 1001.5
jobs_001{namespace="default",queue="queue-00"} 100.25
`
	if diff := cmp.Diff(want, lines(&flags{metrics: 2, selected: 1, pods: 2})); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestSameRules(t *testing.T) {
	var adapter struct {
		Rules         []v1alpha1.MetricRule `json:"rules"`
		ExternalRules []v1alpha1.MetricRule `json:"externalRules"`
	}
	if err := yaml.UnmarshalStrict([]byte(adapterConfig), &adapter); err != nil {
		t.Fatal(err)
	}
	var backend v1alpha1.MetricsBackend
	if err := yaml.UnmarshalStrict(fmt.Appendf(nil, manifest, "http://localhost:9090", "15s"), &backend); err != nil {
		t.Fatal(err)
	}
	if len(adapter.Rules) != 1 || len(adapter.ExternalRules) != 1 {
		t.Fatalf("%d rules and %d external rules, want one of each", len(adapter.Rules), len(adapter.ExternalRules))
	}
	if diff := cmp.Diff(adapter.Rules, backend.Spec.CustomMetrics.Rules); diff != "" {
		t.Errorf("rules of custom metrics (-prometheus-adapter +serving):\n%s", diff)
	}
	if diff := cmp.Diff(adapter.ExternalRules, backend.Spec.ExternalMetrics.Rules); diff != "" {
		t.Errorf("rules of external metrics (-prometheus-adapter +serving):\n%s", diff)
	}
}
