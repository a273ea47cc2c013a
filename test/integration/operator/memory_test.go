// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/heap"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// TestOperatorMemory: the metadata of metrics, which any team chooses, takes no memory. It does not
// run beside other tests, since operators run in this process.
func TestOperatorMemory(t *testing.T) {
	suite := <-idle
	t.Cleanup(func() { idle <- suite })
	outcome.Begin(t)
	// inUse returns the heap in use once the operator has written the status of all metrics. What it receives just then
	// is soon garbage: inUse gives it some time to shrink to the most that may stay.
	inUse := func(metrics int, most float64) float64 {
		t.Helper()
		outcome.Eventually(t, 2*time.Minute, fmt.Sprintf("%d metrics have a status", metrics), func(ctx context.Context) error {
			var external v1alpha1.ExternalMetricList
			if err := suite.admin.List(ctx, &external, client.InNamespace(otherNamespace)); err != nil {
				return err
			}
			written := 0
			for i := range external.Items {
				if len(external.Items[i].Status.Conditions) > 0 {
					written++
				}
			}
			if written != metrics {
				return fmt.Errorf("%d have one", written)
			}
			return nil
		})
		var bytes float64
		_ = outcome.Poll(t.Context(), 30*time.Second, func(context.Context) error {
			if bytes = heap.InUse(); bytes > most {
				return fmt.Errorf("%.1f MB", bytes/1e6)
			}
			return nil
		})
		return bytes
	}
	// add keeps no reference to what it creates.
	add := func(name string, annotations map[string]string) {
		t.Helper()
		m := &v1alpha1.ExternalMetric{ObjectMeta: metav1.ObjectMeta{Namespace: otherNamespace, Name: name, Annotations: annotations}}
		m.Spec.Query = "up"
		if err := suite.admin.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := suite.admin.DeleteAllOf(context.Background(), &v1alpha1.ExternalMetric{}, client.InNamespace(otherNamespace)); err != nil {
			t.Error(err)
		}
	})
	add("small", nil)
	before := inUse(1, math.Inf(1))

	// 26 MB, of which 2.7 MB may stay in memory.
	const metrics, size, limit = 100, 250 << 10, 2.7e6
	annotations := map[string]string{"notes": strings.Repeat("x", size)}
	for i := range metrics {
		add(fmt.Sprintf("large%03d", i), annotations)
	}
	after := inUse(1+metrics, before+limit)
	t.Logf("heap in use: %.1f MB, then %.1f MB", before/1e6, after/1e6)
	if grown := after - before; grown > limit {
		t.Errorf("the heap in use has grown by %.1f MB with %d MB of annotations", grown/1e6, metrics*size/1_000_000)
	}
}
