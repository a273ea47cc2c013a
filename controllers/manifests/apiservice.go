// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// ResourceMetricsGroup is the API group of node and pod metrics.
	ResourceMetricsGroup = "metrics.k8s.io"
	// CustomMetricsGroup is the API group of metrics of objects.
	CustomMetricsGroup = custom_metrics.GroupName
	// ExternalMetricsGroup is the API group of metrics that describe no object.
	ExternalMetricsGroup = external_metrics.GroupName

	// groupPriorityMinimum is low, so that "pods" and "nodes" without a group still mean the
	// core group's.
	groupPriorityMinimum int32 = 100
	// versionPriorityStep leaves room between two versions.
	versionPriorityStep int32 = 100
)

// knownVersions lists what this binary can register, group by group, best version first.
var knownVersions = []schema.GroupVersion{
	{Group: ResourceMetricsGroup, Version: string(v1alpha1.ResourceMetricsV1)},
	{Group: ResourceMetricsGroup, Version: string(v1alpha1.ResourceMetricsV1beta1)},
	{Group: CustomMetricsGroup, Version: string(v1alpha1.CustomMetricsV1beta2)},
	{Group: CustomMetricsGroup, Version: string(v1alpha1.CustomMetricsV1beta1)},
	{Group: ExternalMetricsGroup, Version: string(v1alpha1.ExternalMetricsV1beta1)},
}

// KnownVersions returns all versions that this binary can register, group by group, best
// version first. Others may be registered, by a newer operator.
func KnownVersions() []schema.GroupVersion { return slices.Clone(knownVersions) }

// APIServiceName returns the name that kube-apiserver requires: VERSION.GROUP.
func APIServiceName(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }

// VersionOf parses an APIService's name, VERSION.GROUP.
func VersionOf(name string) (schema.GroupVersion, bool) {
	version, group, ok := strings.Cut(name, ".")
	return schema.GroupVersion{Group: group, Version: version}, ok
}

// APIService returns the registration of a version with target as its backend.
func APIService(s Serving, gv schema.GroupVersion, target Target) *apiregistrationv1ac.APIServiceApplyConfiguration {
	spec := apiregistrationv1ac.APIServiceSpec().
		WithGroup(gv.Group).
		WithVersion(gv.Version).
		WithGroupPriorityMinimum(groupPriorityMinimum).
		WithVersionPriority(versionPriority(gv)).
		// Explicit, because an APIService that has true (as in metrics-server's stock
		// manifest) rejects a caBundle until it is false.
		WithInsecureSkipTLSVerify(target.InsecureSkipTLSVerify).
		WithService(apiregistrationv1ac.ServiceReference().
			WithNamespace(target.Namespace).
			WithName(target.Name).
			WithPort(target.Port))
	if !target.InsecureSkipTLSVerify {
		spec.WithCABundle(target.CABundle...)
	}
	return apiregistrationv1ac.APIService(APIServiceName(gv)).WithLabels(s.SharedLabels()).WithSpec(spec)
}

// CanaryAPIServiceName is the name of the APIService of the canary API.
const CanaryAPIServiceName = v1alpha1.CanaryVersion + "." + v1alpha1.CanaryGroup

// CanaryAPIService returns the registration of the canary API with target as its backend.
// It lacks LabelBackend, so that it is none of the versions that pods must serve.
func CanaryAPIService(s Serving, target Target) *apiregistrationv1ac.APIServiceApplyConfiguration {
	service := APIService(s, schema.GroupVersion{Group: v1alpha1.CanaryGroup, Version: v1alpha1.CanaryVersion}, target)
	delete(service.Labels, v1alpha1.LabelBackend)
	return service.WithLabels(map[string]string{v1alpha1.LabelCanary: s.Backend})
}

// versionPriority returns the priority that sorts the best version first in discovery.
func versionPriority(gv schema.GroupVersion) int32 {
	worse := slices.DeleteFunc(KnownVersions()[slices.Index(knownVersions, gv)+1:], func(other schema.GroupVersion) bool {
		return other.Group != gv.Group
	})
	return versionPriorityStep * int32(1+len(worse))
}

// Target is the backend of an APIService, and how kube-apiserver verifies it.
type Target struct {
	// Namespace, Name and Port are those of the Service.
	Namespace, Name string
	Port            int32
	// CABundle is PEM; nil with InsecureSkipTLSVerify.
	CABundle              []byte
	InsecureSkipTLSVerify bool
}

// Target returns the Service of the serving pods, verified with caBundle (PEM).
func (s Serving) Target(caBundle []byte) Target {
	return Target{Namespace: s.Namespace, Name: s.Name(), Port: ServicePort, CABundle: caBundle}
}

// ExistingTarget returns the Service of spec.existing.
func ExistingTarget(existing *v1alpha1.ExistingSpec) Target {
	t := Target{
		Namespace: existing.Service.Namespace, Name: existing.Service.Name,
		Port:                  ptr.Deref(existing.Service.Port, v1alpha1.DefaultExistingPort),
		InsecureSkipTLSVerify: existing.InsecureSkipTLSVerify,
	}
	if !t.InsecureSkipTLSVerify {
		t.CABundle = existing.CABundle
	}
	return t
}

// Reference returns the Service as an APIService names it.
func (t Target) Reference() *apiregistrationv1.ServiceReference {
	return &apiregistrationv1.ServiceReference{Namespace: t.Namespace, Name: t.Name, Port: &t.Port}
}

// ServerName returns the name for which the aggregator verifies the certificate.
func (t Target) ServerName() string { return t.Name + "." + t.Namespace + ".svc" }

// String returns the Service as NAMESPACE/NAME.
func (t Target) String() string { return t.Namespace + "/" + t.Name }
