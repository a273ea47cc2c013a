// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package restmapping

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func group(name string, versions ...string) *metav1.APIGroup {
	g := &metav1.APIGroup{Name: name}
	for _, v := range versions {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: schema.GroupVersion{Group: name, Version: v}.String(), Version: v})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

func list(groupVersion string, resources ...metav1.APIResource) *metav1.APIResourceList {
	return &metav1.APIResourceList{GroupVersion: groupVersion, APIResources: resources}
}

func resource(plural, singular, kind string) metav1.APIResource {
	return metav1.APIResource{Name: plural, SingularName: singular, Kind: kind, Namespaced: true}
}

// world has groups in an order in which core is not the first.
func world() ([]*metav1.APIGroup, []*metav1.APIResourceList) {
	groups := []*metav1.APIGroup{
		group("metrics.k8s.io", "v1", "v1beta1"), group("", "v1"), group("apps", "v1"), group("autoscaling", "v2", "v1"),
		group("networking.k8s.io", "v1"), group("cheese.io", "v2", "v1"), group("old.cheese.io", "v1"),
	}
	resources := []*metav1.APIResourceList{
		list("metrics.k8s.io/v1", resource("pods", "pod", "PodMetrics")),
		list("v1", resource("pods", "pod", "Pod"), resource("pods/log", "", "Pod"), resource("endpoints", "endpoints", "Endpoints"), metav1.APIResource{Name: "nodes", Kind: "Node"}),
		list("apps/v1", resource("deployments", "deployment", "Deployment")),
		list("autoscaling/v1", resource("horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler")),
		list("autoscaling/v2", resource("horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler")),
		list("networking.k8s.io/v1", resource("ingresses", "ingress", "Ingress"), resource("networkpolicies", "networkpolicy", "NetworkPolicy")),
		list("cheese.io/v1", resource("brands", "brand", "Brand"), resource("rinds", "rind", "Rind")),
		list("cheese.io/v2", resource("brands", "brand", "Brand")),
		list("old.cheese.io/v1", resource("brands", "brand", "OldBrand")),
	}
	return groups, resources
}

func TestFind(t *testing.T) {
	m := NewMapper(world())
	for name, want := range map[string]string{
		"pods": "/v1, Kind=Pod", "pod": "/v1, Kind=Pod", "Pod": "/v1, Kind=Pod", "PODS": "/v1, Kind=Pod",
		"pods.metrics.k8s.io": "metrics.k8s.io/v1, Kind=PodMetrics", "pods.metrics": "metrics.k8s.io/v1, Kind=PodMetrics",
		"endpoints": "/v1, Kind=Endpoints", "node": "/v1, Kind=Node",
		"deployment": "apps/v1, Kind=Deployment", "deployments.apps": "apps/v1, Kind=Deployment", "deployments.extensions": "apps/v1, Kind=Deployment",
		"ingresses.extensions": "networking.k8s.io/v1, Kind=Ingress", "ingress.networking.k8s.io": "networking.k8s.io/v1, Kind=Ingress",
		"ingress.networking": "networking.k8s.io/v1, Kind=Ingress", "networkpolicies.extensions": "networking.k8s.io/v1, Kind=NetworkPolicy",
		"horizontalpodautoscalers": "autoscaling/v2, Kind=HorizontalPodAutoscaler", "horizontalpodautoscalers.extensions": "autoscaling/v2, Kind=HorizontalPodAutoscaler",
		"brand": "cheese.io/v2, Kind=Brand", "brands.old.cheese.io": "old.cheese.io/v1, Kind=OldBrand", "rinds.cheese.io": "cheese.io/v1, Kind=Rind",
		"brands.extensions": "", "pods.apps": "", "pods/log": "", "": "", "jobs": "", "oldbrand": "old.cheese.io/v1, Kind=OldBrand",
	} {
		got, ok := m.Find(schema.ParseGroupResource(name))
		if ok != (want != "") || ok && got.Kind.String() != want {
			t.Errorf("%s is %s (%t), want %q", name, got.Kind, ok, want)
		}
	}
	if r, ok := m.FindLabel("networking_k8s_io", "ingress"); !ok || r.Kind.Kind != "Ingress" {
		t.Errorf("a group in a label is %v", r)
	}
	if _, ok := m.FindLabel("extensions_k8s_io", "ingress"); ok {
		t.Error("a group that does not exist was found")
	}
	for _, empty := range []*Mapper{nil, {}} {
		if _, ok := empty.Find(schema.GroupResource{Resource: "pods"}); ok || !empty.Empty() {
			t.Error("an empty mapper knows something")
		}
	}
}

// A cluster that serves a resource under both names has it once.
func TestAllHasEachResourceOnce(t *testing.T) {
	groups, lists := world()
	groups = append(groups, group("extensions", "v1beta1"))
	lists = append(lists, list("extensions/v1beta1", resource("ingresses", "ingress", "Ingress")))
	m := NewMapper(groups, lists)
	seen := map[string]int{}
	for _, r := range m.All() {
		seen[r.GroupResource().String()]++
	}
	for name, want := range map[string]int{"pods": 1, "ingresses.networking.k8s.io": 1, "ingresses.extensions": 0, "brands.cheese.io": 1, "brands.old.cheese.io": 1} {
		if seen[name] != want {
			t.Errorf("%s is there %d times, want %d", name, seen[name], want)
		}
	}
	if first := m.All()[0]; first.Group != "" {
		t.Errorf("the first is %s", first.GroupVersionResource)
	}
	if r, _ := m.Find(schema.GroupResource{Group: "extensions", Resource: "ingresses"}); r.Group != "networking.k8s.io" {
		t.Errorf("it is in %s", r.Group)
	}
}
