// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// cluster is a Resources with what a test cluster has.
type cluster struct {
	index  *restmapping.Mapper
	wanted int
}

func (c *cluster) Current() *restmapping.Mapper { return c.index }
func (c *cluster) RefreshSoon()                 { c.wanted++ }

// index of a cluster with a few resources, and those of a CRD.
func index(crds ...metav1.APIResource) *restmapping.Mapper {
	groups := []*metav1.APIGroup{group("", "v1"), group("apps", "v1"), group("batch", "v1"), group("networking.k8s.io", "v1"), group("metrics.k8s.io", "v1")}
	lists := []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			named("pods", "pod", "Pod", true), named("services", "service", "Service", true),
			named("namespaces", "namespace", "Namespace", false), named("nodes", "node", "Node", false),
			named("persistentvolumes", "persistentvolume", "PersistentVolume", false),
			{Name: "pods/log", Kind: "Pod", Namespaced: true},
		}},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{named("deployments", "deployment", "Deployment", true)}},
		{GroupVersion: "batch/v1", APIResources: []metav1.APIResource{named("jobs", "job", "Job", true)}},
		{GroupVersion: "networking.k8s.io/v1", APIResources: []metav1.APIResource{named("ingresses", "ingress", "Ingress", true)}},
		{GroupVersion: "metrics.k8s.io/v1", APIResources: []metav1.APIResource{named("pods", "pod", "PodMetrics", true)}},
	}
	if len(crds) > 0 {
		groups = append(groups, group("cheese.io", "v1alpha1"))
		lists = append(lists, &metav1.APIResourceList{GroupVersion: "cheese.io/v1alpha1", APIResources: crds})
	}
	return restmapping.NewMapper(groups, lists)
}

func group(name, version string) *metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: schema.GroupVersion{Group: name, Version: version}.String(), Version: version}
	return &metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
}

func named(plural, singular, kind string, namespaced bool) metav1.APIResource {
	return metav1.APIResource{Name: plural, SingularName: singular, Kind: kind, Namespaced: namespaced}
}

// backend is a spec with one source and rules.
func backend(custom, external []v1alpha1.MetricRule) *v1alpha1.MetricsBackendSpec {
	return &v1alpha1.MetricsBackendSpec{
		Sources: []v1alpha1.SourceSpec{{Name: "prometheus", Prometheus: &v1alpha1.PrometheusSource{
			URL: "http://prometheus:9090", Headers: []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", Value: "team"}},
			QueryParameters: []v1alpha1.SourceQueryParameter{{Name: "extra_label", Value: "team=a"}},
		}}},
		CustomMetrics:   &v1alpha1.CustomMetricsSpec{Rules: custom},
		ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Rules: external},
	}
}

// seriesOf is series with one name.
func seriesOf(name string, labels ...string) series.Series {
	slices.Sort(labels)
	return series.Series{Name: name, Labels: labels, Count: 1}
}

// newCatalog has rules in force, and the same series for each selection.
func newCatalog(t testing.TB, spec *v1alpha1.MetricsBackendSpec, all ...series.Series) *Catalog {
	t.Helper()
	c := NewCatalog(&cluster{index: index()}, clock.RealClock{})
	c.Apply(spec)
	for _, s := range c.Selections() {
		c.SetSeries(s, all)
	}
	return c
}

func objects(c *Catalog) []query.ObjectMetric {
	all, _ := c.ObjectMetrics(math.MaxInt)
	return all
}

func externals(c *Catalog) []string {
	all, _ := c.ExternalMetrics(math.MaxInt)
	return all
}

func selector(t testing.TB, text string) labels.Selector {
	t.Helper()
	s, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pods(namespace, metric string, names ...string) query.ObjectRequest {
	return query.ObjectRequest{Resource: schema.GroupResource{Resource: "pods"}, Namespace: namespace, Names: names, Metric: metric}
}

var namespacePod = v1alpha1.RuleResources{Overrides: map[string]v1alpha1.RuleResource{
	"namespace": {Resource: "namespace"}, "pod": {Resource: "pod"},
}}
