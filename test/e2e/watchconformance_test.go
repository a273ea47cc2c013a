// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
	"github.com/metricsbackend/metrics-backend-operator/test/watchconformance"
)

// watchConformance checks each line of the design's Watch table, through the real
// kube-apiserver, on whichever pod it reaches, and runs what docs/tasks/watch.md
// tells its readers to run.
func watchConformance(t *testing.T) {
	runbook(t, "../watch.md")
	pods := watchconformance.NewPods(suite.core, "default", "metrics-backend/burn:dev")
	// One that is not in the namespace of the others, for the check of namespaces.
	namespace, name, err := pods.Create(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pods.Delete(context.Background(), namespace, name); err != nil {
			t.Error(err)
		}
	})
	outcome.Eventually(t, 2*time.Minute, "the pod has metrics", func(ctx context.Context) error {
		_, err := suite.core.RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1/namespaces", namespace, "pods", name).DoRaw(ctx)
		return err
	})
	report := checkWatch(t, watchconformance.Options{Pods: pods})
	if !report.Served {
		t.Error("discovery names the verb watch for no resource")
	}
	for _, r := range report.With(watchconformance.Failed, watchconformance.Promised) {
		t.Errorf("%s of %s %s: %s", r.Check, r.Version, r.Resource, r.Why)
	}
	for _, r := range report.With(watchconformance.Unseen, watchconformance.Promised) {
		// There is one node, so no label tells it from others.
		if r.Check != "label-selector" || r.Resource != "nodes" {
			t.Errorf("%s of %s %s was not seen: %s", r.Check, r.Version, r.Resource, r.Why)
		}
	}
}

// requireNoWatch: of a server without watch the suite says so, finds that it refuses
// a watch as it should, and has nothing else to say against it.
func requireNoWatch(t *testing.T) {
	t.Helper()
	report := checkWatch(t, watchconformance.Options{})
	if report.Served {
		t.Error("metrics-server is said to serve watch")
	}
	for _, r := range report.Results {
		refusal := r.Check == "discovery-is-behaviour"
		if r.Outcome == watchconformance.Failed || r.Outcome == watchconformance.Unseen || refusal && r.Outcome != watchconformance.Passed {
			t.Errorf("%s of %s %s: %s: %s", r.Check, r.Version, r.Resource, r.Outcome, r.Why)
		}
	}
	if len(report.With(watchconformance.NotServed, watchconformance.Required)) == 0 {
		t.Error("no check is left out for lack of a watch")
	}
	if !slices.Equal(report.Versions, []string{"v1beta1"}) {
		t.Errorf("checked versions %q", report.Versions)
	}
}

func checkWatch(t *testing.T, options watchconformance.Options) *watchconformance.Report {
	t.Helper()
	// Beside the other tests all is slow. Where it is not, patience costs nothing.
	options.Patience = 30 * time.Second
	report, err := watchconformance.Run(t.Context(), suite.config, watchconformance.ResourceMetrics(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", report)
	return report
}
