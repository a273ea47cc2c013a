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

// Index holds the resources of one discovery. It is immutable; the zero value is empty.
//
// client-go's RESTMapper does not do: it goes through all resources of the cluster for each
// name, and a name is looked up for each label of each series; it finds no resource by its kind
// without the group; and it also knows resources that do not exist, such as "lists" and
// "podlists", which would make objects of labels with these names.
type Index struct {
	// byName holds the resources by plural, singular and kind in lower case, core first, then in
	// the cluster's order of groups.
	byName map[string][]Resource
	all    []Resource
}

// NewIndex returns an index of the lists, in the order of the groups.
func NewIndex(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) *Index {
	byVersion := make(map[string]*metav1.APIResourceList, len(lists))
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
	}
	// Core wins over a group that reuses its names, such as metrics.k8s.io.
	groups = slices.Clone(groups)
	slices.SortStableFunc(groups, func(a, b *metav1.APIGroup) int { return cmp.Compare(min(len(a.Name), 1), min(len(b.Name), 1)) })
	x := &Index{byName: map[string][]Resource{}}
	for _, g := range groups {
		for _, version := range append([]metav1.GroupVersionForDiscovery{g.PreferredVersion}, g.Versions...) {
			if l := byVersion[version.GroupVersion]; l != nil {
				for i := range l.APIResources {
					x.add(schema.GroupVersion{Group: g.Name, Version: version.Version}, &l.APIResources[i])
				}
			}
		}
	}
	x.all = slices.DeleteFunc(x.all, func(r Resource) bool { return x.newest(r) != r })
	return x
}

// add adds a resource, unless it is known in a version that was added before.
func (x *Index) add(gv schema.GroupVersion, r *metav1.APIResource) {
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
		if slices.ContainsFunc(x.byName[name], known) {
			continue
		}
		x.byName[name] = append(x.byName[name], resource)
		if i == 0 {
			x.all = append(x.all, resource)
		}
	}
}

// Find returns a resource by its plural, singular or kind. Without a group it is the first one
// in the index; a group may be abbreviated, as in kubectl. A resource that has moved between
// groups is found under each of them, and returned in the newest one that the cluster has.
func (x *Index) Find(gr schema.GroupResource) (Resource, bool) {
	group := strings.ToLower(gr.Group)
	return x.first(gr.Resource,
		func(r Resource) bool { return r.Group == group || group == "" },
		func(r Resource) bool { return sameResource(r.Resource, group, r.Group) },
		func(r Resource) bool { return strings.HasPrefix(r.Group, group) })
}

// FindLabel is Find with a group as GroupLabel returns it.
func (x *Index) FindLabel(group, resource string) (Resource, bool) {
	if r, ok := x.Find(schema.GroupResource{Group: group, Resource: resource}); ok {
		return r, true
	}
	return x.first(resource, func(r Resource) bool { return GroupLabel(r.Group) == group })
}

// first returns the first resource of a name that meets the first of the conditions that any
// meets.
func (x *Index) first(name string, conditions ...func(Resource) bool) (Resource, bool) {
	if x == nil {
		return Resource{}, false
	}
	candidates := x.byName[strings.ToLower(name)]
	for _, holds := range conditions {
		if i := slices.IndexFunc(candidates, holds); i >= 0 {
			return x.newest(candidates[i]), true
		}
	}
	return Resource{}, false
}

// All returns each resource once, core first, then in the cluster's order of groups.
func (x *Index) All() []Resource { return x.all }

// Empty reports whether the index has no resources, as before the first discovery.
func (x *Index) Empty() bool { return x == nil || len(x.byName) == 0 }

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
func (x *Index) newest(r Resource) Resource {
	groups := moved[r.Resource]
	if !slices.Contains(groups, r.Group) {
		return r
	}
	for _, group := range groups {
		for _, other := range x.byName[r.Resource] {
			if other.Group == group && other.Resource == r.Resource {
				return other
			}
		}
	}
	return r
}
