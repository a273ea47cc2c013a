// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// ResourceMetricsGroup is the API group of node and pod metrics.
	ResourceMetricsGroup = "metrics.k8s.io"
	// CustomMetricsGroup is the API group of metrics of objects.
	CustomMetricsGroup = custom_metrics.GroupName
	// ExternalMetricsGroup is the API group of metrics that describe no object.
	ExternalMetricsGroup = external_metrics.GroupName

	// groupPriorityMinimum is low on purpose: "pods" and "nodes" without a group
	// must go on meaning the core ones, and each custom metric is a resource's.
	groupPriorityMinimum int32 = 100
	// versionPriorityStep leaves room between two versions.
	versionPriorityStep int32 = 100
)

// knownVersions lists what this binary can register, best version first.
var knownVersions = map[string][]string{
	ResourceMetricsGroup: {string(v1alpha1.ResourceMetricsV1), string(v1alpha1.ResourceMetricsV1beta1)},
	CustomMetricsGroup:   {string(v1alpha1.CustomMetricsV1beta2), string(v1alpha1.CustomMetricsV1beta1)},
	ExternalMetricsGroup: {string(v1alpha1.ExternalMetricsV1beta1)},
}

// groups are those of knownVersions, in the order of statuses and messages.
var groups = []string{ResourceMetricsGroup, CustomMetricsGroup, ExternalMetricsGroup}

// KnownVersions returns all that this binary can register, group by group, best
// version first. It is no list of what may exist: a newer operator may have registered others.
func KnownVersions() []schema.GroupVersion {
	var known []schema.GroupVersion
	for _, group := range groups {
		for _, version := range knownVersions[group] {
			known = append(known, schema.GroupVersion{Group: group, Version: version})
		}
	}
	return known
}

// APIServiceName is the name that kube-apiserver demands: VERSION.GROUP.
func APIServiceName(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }

// APIService registers a version with kube-apiserver's aggregator, to lead to target.
func APIService(s Serving, gv schema.GroupVersion, target Target) *apiregistrationv1ac.APIServiceApplyConfiguration {
	spec := apiregistrationv1ac.APIServiceSpec().
		WithGroup(gv.Group).
		WithVersion(gv.Version).
		WithGroupPriorityMinimum(groupPriorityMinimum).
		WithVersionPriority(versionPriority(gv)).
		// Explicit, because an APIService that was made with true (the stock
		// manifest of metrics-server is) refuses a caBundle until it is false.
		WithInsecureSkipTLSVerify(target.InsecureSkipTLSVerify).
		WithService(apiregistrationv1ac.ServiceReference().
			WithNamespace(target.Namespace).
			WithName(target.Name).
			WithPort(target.Port))
	if !target.InsecureSkipTLSVerify {
		spec.WithCABundle(target.CABundle...)
	}
	return apiregistrationv1ac.APIService(APIServiceName(gv)).WithLabels(s.Labels()).WithSpec(spec)
}

// versionPriority puts the best version first in discovery.
func versionPriority(gv schema.GroupVersion) int32 {
	versions := knownVersions[gv.Group]
	return versionPriorityStep * int32(len(versions)-slices.Index(versions, gv.Version))
}
