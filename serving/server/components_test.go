// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/consumers"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
)

// TestApplySettings: the settings are applied to all components, or to none if the scraper
// rejects its own.
func TestApplySettings(t *testing.T) {
	initial, err := config.SettingsFrom(&v1alpha1.MetricsBackendSpec{})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := installedComponents(t, initial, consumers.NewRecorder(clock.RealClock{}, nil), func(*genericapiserver.Config) {})
	minuteAgo, key := time.Now().Add(-time.Minute), samplestore.Key{Name: "node"}
	p.store.Nodes.SetMeta(key, &samplestore.Meta{UID: "a"})
	p.store.Nodes.Publish([]samplestore.Update{{Key: key, Point: &samplestore.Point{
		Time: samplestore.TimeOf(minuteAgo), Newest: samplestore.TimeOf(minuteAgo), Node: "node", Usages: []samplestore.Usage{{CPU: 1, Memory: 1}},
	}}})
	changed := initial
	changed.Spec = initial.Spec.DeepCopy()
	changed.Spec.Sources = []v1alpha1.SourceSpec{prometheusAt("main", "http://127.0.0.1:1")}
	changed.MaxAge, changed.Watch.Limits.Connections = time.Second, 0
	for _, interval := range []time.Duration{0, time.Second} {
		changed.Kubelet.Interval = interval
		valid := interval > 0
		if err := p.applySettings(t.Context(), changed); (err == nil) != valid {
			t.Errorf("interval %s: %v", interval, err)
		}
		if old := p.store.Nodes.Get(key) == nil; old != valid {
			t.Errorf("interval %s: the maximum age is applied: %t", interval, old)
		}
		if sources := len(p.pipeline.sources.health()); (sources == 1) != valid {
			t.Errorf("interval %s: %d sources", interval, sources)
		}
		if _, err := p.watches.quota.Acquire(&user.DefaultInfo{Name: "jane"}); (err != nil) != valid {
			t.Errorf("interval %s: a watch is admitted with the error %v", interval, err)
		}
	}
}

// installedComponents returns components in a generic API server that does not run, and the server's handler.
func installedComponents(t *testing.T, initial config.Settings, recorder *consumers.Recorder, change func(*genericapiserver.Config)) (*components, http.Handler) {
	t.Helper()
	kubeconfig := unreachableKubeconfig(t)
	o := parsedOptions(t, "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)
	o.SecureServing.Listener = listen(t)
	p, err := o.newComponents(&rest.Config{Host: "https://127.0.0.1:1"}, clock.RealClock{}, initial)
	if err != nil {
		t.Fatal(err)
	}
	generic, _, err := o.genericConfig(recorder, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	change(generic)
	server, err := generic.Complete(nil).New("serving", genericapiserver.NewEmptyDelegate())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.install(sets.New(compiledVersions()...), server, initial, time.Minute); err != nil {
		t.Fatal(err)
	}
	return p, server.Handler
}
