// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package restmapping

import "slices"

// moved are the groups of the resources that Kubernetes moved, newest first. The
// proposal of the custom metrics API wants their names to answer alike ("cross-group
// object renames"): autoscalers and rules still name the groups of their time.
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

// sameResource says whether a plural resource is the same in two groups.
func sameResource(resource, group, other string) bool {
	groups := moved[resource]
	return slices.Contains(groups, group) && slices.Contains(groups, other)
}

// newest returns a resource as it is in the newest of its groups that the cluster has.
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
