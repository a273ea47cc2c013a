// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package prometheus

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/resourcerules"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const resourceSeries = series + `
container_cpu_usage_seconds_total{namespace="a",pod="one",container="web",cpu="0"} 100 +0.25
container_cpu_usage_seconds_total{namespace="a",pod="one",container="web",cpu="1"} 100 +0.25
container_cpu_usage_seconds_total{namespace="a",pod="one",container=""} 100 +9
container_memory_working_set_bytes{namespace="a",pod="one",container="web"} 1048576
container_memory_working_set_bytes{namespace="a",pod="one",container=""} 9
node_cpu_seconds_total{node="n1",mode="user"} 5 +1.5
node_cpu_seconds_total{node="n1",mode="idle"} 5 +9
node_memory_used_bytes{node="n1"} 2097152
`

// Resource rules as people have them give the figures of what a real Prometheus scraped.
func TestResourceRules(t *testing.T) {
	t.Parallel()
	s := start(t, resourceSeries, `rate(container_cpu_usage_seconds_total{cpu="0"}[5s]) > 0.2`)
	resources := v1alpha1.RuleResources{Overrides: map[string]v1alpha1.RuleResource{
		"namespace": {Resource: "namespace"}, "pod": {Resource: "pod"}, "node": {Resource: "node"},
	}}
	specs := []v1alpha1.SourceSpec{{Name: "real", Prometheus: &v1alpha1.PrometheusSource{URL: s.server.URL}}}
	queries, problems := rules.CompileResourceRules(&v1alpha1.ResourceRules{
		Window: "5s",
		CPU: v1alpha1.ResourceRule{
			ContainerQuery: `sum(rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>,container!=""}[5s])) by (<<.GroupBy>>)`,
			NodeQuery:      `sum(rate(node_cpu_seconds_total{mode!="idle",<<.LabelMatchers>>}[5s])) by (<<.GroupBy>>)`,
			Resources:      resources, ContainerLabel: "container",
		},
		Memory: v1alpha1.ResourceRule{
			ContainerQuery: `sum(container_memory_working_set_bytes{<<.LabelMatchers>>,container!=""}) by (<<.GroupBy>>)`,
			NodeQuery:      `sum(node_memory_used_bytes{<<.LabelMatchers>>}) by (<<.GroupBy>>)`,
			Resources:      resources, ContainerLabel: "container",
		},
	}, specs)
	if queries == nil {
		t.Fatalf("the rules do not compile: %+v", problems)
	}
	store := samplestore.NewStore(clock.RealClock{}, 90*time.Second)
	node, pod := samplestore.Key{Name: "n1"}, samplestore.Key{Namespace: "a", Name: "one"}
	store.Nodes.SetMeta(node, &samplestore.Meta{UID: types.UID("n1")})
	store.Pods.SetMeta(pod, &samplestore.Meta{UID: types.UID("one")})
	published := make(chan struct{}, 10)
	for _, collection := range []*samplestore.Collection{store.Nodes, store.Pods} {
		collection.Observe(func([]*samplestore.Object) { published <- struct{}{} })
	}

	poller := resourcerules.New(store, clock.RealClock{}, func(string) (query.Source, bool) { return s.source, true })
	poller.Apply(queries)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		poller.Run(ctx)
	}()
	const nodeCPU, containerCPU = 1_500_000_000, 500_000_000
	atLeast := func(o *samplestore.Object, cpu uint64) bool {
		return o != nil && len(o.Point.Usages) == 1 && o.Point.Usages[0].CPU >= cpu*8/10
	}
	// Prometheus calculates lower rates while its scrapes are late.
	late := time.After(time.Minute)
	for !atLeast(store.Nodes.Get(node), nodeCPU) || !atLeast(store.Pods.Get(pod), containerCPU) {
		select {
		case <-published:
		case <-late:
			cancel()
			<-done
			outcome.Deadlinef(t, "no point of such CPU within a minute: %+v", poller.Report())
		}
	}
	cancel()
	<-done

	near := func(what string, got, want uint64) {
		t.Helper()
		if got < want*8/10 || got > want*12/10 {
			t.Errorf("%s is %d, want about %d", what, got, want)
		}
	}
	for what, o := range map[string]*samplestore.Object{"node": store.Nodes.Get(node), "pod": store.Pods.Get(pod)} {
		if o == nil || len(o.Point.Usages) != 1 {
			t.Fatalf("%s: %+v; %+v", what, o, poller.Report())
		}
		if age := time.Since(o.Point.Time.AsTime()); o.Point.Window != 5*time.Second || age < 0 || age > time.Minute {
			t.Errorf("%s: window %s, %s old", what, o.Point.Window, age)
		}
	}
	near("the node's CPU", store.Nodes.Get(node).Point.Usages[0].CPU, nodeCPU)
	near("the container's CPU", store.Pods.Get(pod).Point.Usages[0].CPU, containerCPU)
	if u := store.Pods.Get(pod).Point.Usages[0]; u.Name != "web" || u.Memory != 1<<20 {
		t.Errorf("the container is %+v", u)
	}
	if got := store.Nodes.Get(node).Point.Usages[0].Memory; got != 2<<20 {
		t.Errorf("the node's memory is %d", got)
	}
}
