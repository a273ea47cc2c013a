// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
)

// TestApplySettingsAllOrNone: if the scraper rejects its settings, no others are applied.
func TestApplySettingsAllOrNone(t *testing.T) {
	initial, err := config.SettingsFrom(&v1alpha1.MetricsBackendSpec{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := parsedOptions(t).newComponents(&rest.Config{Host: "https://127.0.0.1:1"}, clock.RealClock{}, initial)
	if err != nil {
		t.Fatal(err)
	}
	minuteAgo, key := time.Now().Add(-time.Minute), samplestore.Key{Name: "node"}
	p.store.Nodes.SetMeta(key, &samplestore.Meta{UID: "a"})
	p.store.Nodes.Publish([]samplestore.Update{{Key: key, Point: &samplestore.Point{
		Time: minuteAgo, Newest: minuteAgo, Node: "node", Usages: []samplestore.Usage{{CPU: 1, Memory: 1}},
	}}})
	changed := initial
	changed.Spec = initial.Spec.DeepCopy()
	changed.Spec.Sources = []v1alpha1.SourceSpec{prometheusAt("main", "http://127.0.0.1:1")}
	changed.MaxAge, changed.Kubelet.Interval = time.Second, 0
	if err := p.applySettings(t.Context(), changed); err == nil {
		t.Error("no error")
	}
	if p.store.Nodes.Get(key) == nil || len(p.pipeline.sources.health()) != 0 {
		t.Error("other settings were applied")
	}
}
