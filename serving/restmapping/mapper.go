// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restmapping maps names of the cluster's resources (plural, singular or kind, with or
// without a group) to resources, and learns of resources that are installed later.
package restmapping

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a resource of the cluster.
type Resource struct {
	// GroupVersionResource is plural, in the version that the cluster prefers.
	schema.GroupVersionResource
	Kind       schema.GroupVersionKind
	Singular   string
	Namespaced bool
}

// Mapper holds the resources of one discovery. It is immutable; the zero value is empty.
//
// It replaces client-go's restmapper.NewDiscoveryRESTMapper, which asks every group and version for
// each name, although a name is looked up for each label of each series; finds no resource by its
// kind without the group; and has resources that do not exist, such as "lists" and "podlists",
// which would make objects of labels with these names.
type Mapper struct {
	// byName holds the resources by plural, singular and kind in lower case, core first, then in
	// the cluster's order of groups.
	byName map[string][]Resource
	all    []Resource
}

// NewMapper returns a mapper to the resources in the lists, in the order of the groups.
func NewMapper(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) *Mapper {
	byVersion := make(map[string]*metav1.APIResourceList, len(lists))
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
	}
	// Core wins over a group that reuses its names, such as metrics.k8s.io.
	groups = slices.Clone(groups)
	slices.SortStableFunc(groups, func(a, b *metav1.APIGroup) int { return cmp.Compare(min(len(a.Name), 1), min(len(b.Name), 1)) })
	m := &Mapper{byName: map[string][]Resource{}}
	for _, g := range groups {
		for _, version := range append([]metav1.GroupVersionForDiscovery{g.PreferredVersion}, g.Versions...) {
			if l := byVersion[version.GroupVersion]; l != nil {
				for i := range l.APIResources {
					m.add(schema.GroupVersion{Group: g.Name, Version: version.Version}, &l.APIResources[i])
				}
			}
		}
	}
	m.all = slices.DeleteFunc(m.all, func(r Resource) bool { return m.newest(r) != r })
	return m
}

// add adds a resource, unless it is known in a version that was added before.
func (m *Mapper) add(gv schema.GroupVersion, r *metav1.APIResource) {
	if strings.Contains(r.Name, "/") {
		return // a subresource
	}
	resource := Resource{
		GroupVersionResource: gv.WithResource(r.Name),
		Kind:                 gv.WithKind(r.Kind),
		Singular:             cmp.Or(r.SingularName, strings.ToLower(r.Kind)),
		Namespaced:           r.Namespaced,
	}
	known := func(o Resource) bool { return o.GroupResource() == resource.GroupResource() }
	for i, name := range []string{r.Name, resource.Singular, r.Kind} {
		name = strings.ToLower(name)
		if slices.ContainsFunc(m.byName[name], known) {
			continue
		}
		m.byName[name] = append(m.byName[name], resource)
		if i == 0 {
			m.all = append(m.all, resource)
		}
	}
}

// Find returns a resource by its plural, singular or kind. Without a group it is the first one
// in the mapper; a group may be abbreviated, as in kubectl. A resource that has moved between
// groups is found under each of them, and returned in the newest one that the cluster has.
func (m *Mapper) Find(gr schema.GroupResource) (Resource, bool) {
	group := strings.ToLower(gr.Group)
	return m.first(gr.Resource,
		func(r Resource) bool { return r.Group == group || group == "" },
		func(r Resource) bool { return sameResource(r.Resource, group, r.Group) },
		func(r Resource) bool { return strings.HasPrefix(r.Group, group) })
}

// FindLabel is Find with a group as GroupLabel returns it.
func (m *Mapper) FindLabel(group, resource string) (Resource, bool) {
	if r, ok := m.Find(schema.GroupResource{Group: group, Resource: resource}); ok {
		return r, true
	}
	return m.first(resource, func(r Resource) bool { return GroupLabel(r.Group) == group })
}

// first returns the first resource of a name that meets the first of the conditions that any
// meets.
func (m *Mapper) first(name string, conditions ...func(Resource) bool) (Resource, bool) {
	if m == nil {
		return Resource{}, false
	}
	candidates := m.byName[strings.ToLower(name)]
	for _, holds := range conditions {
		if i := slices.IndexFunc(candidates, holds); i >= 0 {
			return m.newest(candidates[i]), true
		}
	}
	return Resource{}, false
}

// All returns each resource once, core first, then in the cluster's order of groups.
func (m *Mapper) All() []Resource { return m.all }

// Empty reports whether the mapper has no resources, as before the first discovery.
func (m *Mapper) Empty() bool { return m == nil || len(m.byName) == 0 }

var groupLabel = strings.NewReplacer(".", "_", "-", "_")

// GroupLabel returns a group as it appears in the name of a label.
func GroupLabel(group string) string { return groupLabel.Replace(group) }

// moved lists the groups of resources that Kubernetes has moved, newest first. The proposal of
// the custom metrics API wants them to be equivalent ("cross-group object renames"), since
// autoscalers and rules may still name an old group.
var moved = map[string][]string{
	"daemonsets":               {"apps", "extensions"},
	"deployments":              {"apps", "extensions"},
	"replicasets":              {"apps", "extensions"},
	"ingresses":                {"networking.k8s.io", "extensions"},
	"networkpolicies":          {"networking.k8s.io", "extensions"},
	"podsecuritypolicies":      {"policy", "extensions"},
	"horizontalpodautoscalers": {"autoscaling", "extensions"},
	"jobs":                     {"batch", "extensions"},
	"events":                   {"", "events.k8s.io"},
}

// sameResource reports whether a resource moved between two groups.
func sameResource(resource, group, other string) bool {
	groups := moved[resource]
	return slices.Contains(groups, group) && slices.Contains(groups, other)
}

// newest returns a resource in the newest of its groups that the cluster has.
func (m *Mapper) newest(r Resource) Resource {
	groups := moved[r.Resource]
	if !slices.Contains(groups, r.Group) {
		return r
	}
	for _, group := range groups {
		for _, other := range m.byName[r.Resource] {
			if other.Group == group && other.Resource == r.Resource {
				return other
			}
		}
	}
	return r
}
