// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/test/watchconformance"
)

// conformToWatch runs the conformance suite through the aggregator, up to what only
// this project promises. It is a companion of TestWatch.
func conformToWatch(t *testing.T) {
	report, err := watchconformance.Run(t.Context(), suite.config, watchconformance.ResourceMetrics(), watchconformance.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", report)
	if !report.Served {
		t.Error("discovery names the verb watch for no resource")
	}
	for _, r := range report.With(watchconformance.Failed, watchconformance.Promised) {
		t.Errorf("%s, %s %s: %s (%s)", r.Check, r.Version, r.Resource, r.Why, r.Source)
	}
}
