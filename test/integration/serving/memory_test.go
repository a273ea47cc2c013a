//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// TestServingMemory: the metadata of metrics, which any team chooses, takes no memory. It does not
// run beside other tests, whose processes would read the metrics, too.
func TestServingMemory(t *testing.T) {
	outcome.Begin(t)
	reader, profiler := cluster.token(t, "reader"), cluster.token(t, "profiler")
	backends := newBackendClient(t)
	backend := &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: "memory"}}
	backend.Spec.ResourceMetrics = &v1alpha1.ResourceMetricsSpec{}
	create(t, backends, backend)
	start := func() *process {
		return cluster.startServing(t, "memory", "--backend=memory", "--service-namespace="+servingNamespace, "--service-name=memory")
	}
	// wait returns what the process uses once it has read the metrics. What it decodes just then is soon
	// garbage: wait gives the heap some time to shrink to the most that may stay.
	wait := func(p *process, metrics int, most float64) (r resources, resident float64) {
		t.Helper()
		outcome.Eventually(t, 3*time.Minute, fmt.Sprintf("%d metrics are read", metrics), func(ctx context.Context) error {
			report, err := readReport[v1alpha1.DeclaredReport](ctx, p, v1alpha1.DeclaredPath, reader)
			if err != nil {
				return err
			}
			if len(report.Metrics) != metrics {
				return fmt.Errorf("%d metrics", len(report.Metrics))
			}
			return nil
		})
		tooMuch := errors.New("the heap is too large")
		err := outcome.Poll(t.Context(), 30*time.Second, func(ctx context.Context) error {
			used, err := p.resources(ctx, profiler)
			if err != nil {
				return err
			}
			bytes, err := p.sample(ctx, profiler, "process_resident_memory_bytes", nil)
			if err != nil {
				return err
			}
			r, resident = used, bytes
			if r.heap > most {
				return tooMuch
			}
			return nil
		})
		if err != nil && !errors.Is(err, tooMuch) {
			t.Fatalf("read the metrics: %v", err)
		}
		return r, resident
	}
	create(t, backends, &v1alpha1.ExternalMetric{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "small"}, Spec: smallSpec})
	p := start()
	before, residentBefore := wait(p, 1, math.Inf(1))

	// 50 MB, of which 5 MiB may stay in memory.
	const each, size, limit = 100, 250 << 10, 5 << 20
	large := strings.Repeat("x", size)
	for i := range each {
		meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("large%03d", i), Annotations: map[string]string{"notes": large}}
		create(t, backends, &v1alpha1.ExternalMetric{ObjectMeta: meta, Spec: smallSpec})
		custom := &v1alpha1.CustomMetric{ObjectMeta: meta}
		custom.Spec.DeclaredMetricSpec, custom.Spec.DescribedObject = smallSpec.DeclaredMetricSpec, v1alpha1.DescribedObjects{Resource: "pods", NameLabel: "pod"}
		create(t, backends, custom)
	}
	after, residentAfter := wait(p, 1+2*each, before.heap+limit)
	t.Logf("heap in use: %.1f MB, then %.1f MB; resident: %.1f MB, then %.1f MB", before.heap/1e6, after.heap/1e6, residentBefore/1e6, residentAfter/1e6)
	if grown := after.heap - before.heap; grown > limit {
		t.Errorf("the heap in use has grown by %.1f MB with %d MB of annotations", grown/1e6, 2*each*size/1_000_000)
	}
	// A start lists all of them at once.
	restarted, residentRestarted := wait(start(), 1+2*each, before.heap+limit)
	t.Logf("after a start: heap in use %.1f MB, resident %.1f MB", restarted.heap/1e6, residentRestarted/1e6)
	if grown := restarted.heap - before.heap; grown > limit {
		t.Errorf("after a start the heap in use is %.1f MB larger", grown/1e6)
	}
}

// smallSpec is the spec of a metric without a source.
var smallSpec = v1alpha1.ExternalMetricSpec{DeclaredMetricSpec: v1alpha1.DeclaredMetricSpec{Query: "up"}}
