// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restmapping knows what the resources of the cluster are called: plural,
// singular and kind, with their groups and the groups that they moved from. It learns
// those that are installed later.
package restmapping

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is what a name of a resource means in the cluster.
type Resource struct {
	// GroupVersionResource is plural, in the version that the cluster prefers.
	schema.GroupVersionResource
	Kind       schema.GroupVersionKind
	Singular   string
	Namespaced bool
}

// Index is what the cluster had when it was last asked. It is immutable; the zero
// value knows nothing.
type Index struct {
	// byName holds the resources of each plural, singular and kind, in lower case
	// and in the cluster's order of groups, core first.
	byName map[string][]Resource
	all    []Resource
}

// NewIndex makes an index of discovery's lists, in the order of the groups.
func NewIndex(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) *Index {
	byVersion := make(map[string]*metav1.APIResourceList, len(lists))
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
	}
	x := &Index{byName: map[string][]Resource{}}
	for _, g := range groups {
		for _, version := range versions(g) {
			gv := schema.GroupVersion{Group: g.Name, Version: version}
			if l := byVersion[gv.String()]; l != nil {
				for i := range l.APIResources {
					x.add(gv, &l.APIResources[i])
				}
			}
		}
	}
	// Core wins over a group that reuses its names, such as metrics.k8s.io.
	coreFirst := func(a, b Resource) int { return boolCompare(a.Group != "", b.Group != "") }
	for _, resources := range x.byName {
		slices.SortStableFunc(resources, coreFirst)
	}
	slices.SortStableFunc(x.all, coreFirst)
	x.all = slices.DeleteFunc(x.all, func(r Resource) bool { return x.newest(r) != r })
	return x
}

// versions returns a group's versions, the preferred one first.
func versions(g *metav1.APIGroup) []string {
	var all []string
	if g.PreferredVersion.Version != "" {
		all = append(all, g.PreferredVersion.Version)
	}
	for _, v := range g.Versions {
		if v.Version != g.PreferredVersion.Version {
			all = append(all, v.Version)
		}
	}
	return all
}

func (x *Index) add(gv schema.GroupVersion, r *metav1.APIResource) {
	if strings.Contains(r.Name, "/") {
		return // a subresource
	}
	resource := Resource{
		GroupVersionResource: gv.WithResource(r.Name),
		Kind:                 gv.WithKind(r.Kind),
		Singular:             r.SingularName,
		Namespaced:           r.Namespaced,
	}
	if resource.Singular == "" {
		resource.Singular = strings.ToLower(r.Kind)
	}
	if !slices.ContainsFunc(x.byName[strings.ToLower(r.Name)], func(o Resource) bool {
		return o.GroupResource() == resource.GroupResource()
	}) {
		x.all = append(x.all, resource)
	}
	names := []string{strings.ToLower(r.Name), strings.ToLower(resource.Singular), strings.ToLower(r.Kind)}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		known := slices.ContainsFunc(x.byName[name], func(o Resource) bool {
			return o.Group == gv.Group && o.Resource == r.Name
		})
		if !known { // the preferred version came first
			x.byName[name] = append(x.byName[name], resource)
		}
	}
}

// Find returns what a resource means, given as plural, singular or kind. Without a
// group it is the first one that the cluster lists; a group may be cut short, as
// kubectl allows. A resource that moved between groups is found under either, and
// is always the one in the newest group that the cluster has.
func (x *Index) Find(gr schema.GroupResource) (Resource, bool) {
	if x == nil {
		return Resource{}, false
	}
	candidates := x.byName[gr.Resource]
	if candidates == nil {
		candidates = x.byName[strings.ToLower(gr.Resource)]
	}
	if gr.Group == "" {
		if len(candidates) == 0 {
			return Resource{}, false
		}
		return x.newest(candidates[0]), true
	}
	group := strings.ToLower(gr.Group)
	for _, r := range candidates {
		if r.Group == group {
			return x.newest(r), true
		}
	}
	for _, r := range candidates {
		if sameResource(r.Resource, group, r.Group) {
			return x.newest(r), true
		}
	}
	for _, r := range candidates {
		if strings.HasPrefix(r.Group, group) {
			return x.newest(r), true
		}
	}
	return Resource{}, false
}

// FindLabel is Find for a group in the form in which it can be part of a label's name:
// with underscores for dots and dashes.
func (x *Index) FindLabel(group, resource string) (Resource, bool) {
	if r, ok := x.Find(schema.GroupResource{Group: group, Resource: resource}); ok || x == nil {
		return r, ok
	}
	for _, r := range x.byName[strings.ToLower(resource)] {
		if GroupLabel(r.Group) == group {
			return x.newest(r), true
		}
	}
	return Resource{}, false
}

// All returns each resource once, core first, then in the cluster's order of groups.
func (x *Index) All() []Resource { return x.all }

// Empty says that nothing is known, as before the first answer of discovery.
func (x *Index) Empty() bool { return x == nil || len(x.byName) == 0 }

var groupLabel = strings.NewReplacer(".", "_", "-", "_")

// GroupLabel is a group in the form in which it can be part of a label's name.
func GroupLabel(group string) string { return groupLabel.Replace(group) }

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b: // false comes before true
		return -1
	default:
		return 1
	}
}
