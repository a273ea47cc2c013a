// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests builds the objects of a MetricsBackend as typed apply configurations.
// Builders are pure: the same Serving results in the same objects.
//
// Labels and annotations of the MetricsBackend are never copied to its objects: GitOps tools
// track objects by them and would prune these.
package manifests

import (
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// ContainerName is the name of the serving container.
	ContainerName = "serving"
	// PortName is the port's name in container, Service and probes. The aggregator finds a
	// Service's endpoints by it.
	PortName = "https"
	// ServicePort is the port of the Service, and the default of an APIService.
	ServicePort int32 = 443

	// componentServing is the value of app.kubernetes.io/component. It is part of the
	// Deployment's selector, which is immutable.
	componentServing = "serving"
	labelComponent   = "app.kubernetes.io/component"

	namePrefix = "metrics-serving-"
)

// Serving is the input of all builders.
type Serving struct {
	// Backend is the name of the MetricsBackend.
	Backend string
	// Namespace is that of the namespaced objects.
	Namespace string
	// Installation names the operator, by its namespace.
	Installation string
	// Image is the container image.
	Image string
	// KubeletPort is the port of the kubelets, for the NetworkPolicy.
	KubeletPort int32
	// APIServerPorts are those that kube-apiservers listen on, for the NetworkPolicy.
	APIServerPorts []int32
	// AccountUID is the UID of the pods' ServiceAccount.
	AccountUID types.UID
	// Quota says that the namespace needs a ResourceQuota of ours.
	Quota bool
	// Spec is spec.serving with all defaults set.
	Spec v1alpha1.ServingSpec
	// Sources are those of the spec, for their Secrets and ports.
	Sources []v1alpha1.SourceSpec
	// Scrapes says that kubelets are scraped.
	Scrapes bool
	// CustomMetrics and ExternalMetrics say which of these groups are served, or the spec names.
	CustomMetrics, ExternalMetrics bool
	// ObjectsRoleMissing says that the cluster has no ObjectsRole to bind.
	ObjectsRoleMissing bool
	// RoleBefore, ClusterRoleBefore and PolicyBefore are the Role, ClusterRole and NetworkPolicy in the cluster, whose
	// resource names, accounts and TCP ports stay: pods serve a section that the spec no longer has.
	RoleBefore        rbacv1.Role
	ClusterRoleBefore rbacv1.ClusterRole
	PolicyBefore      networkingv1.NetworkPolicy
}

// Name returns the name of the objects; further objects of a kind add a suffix.
func (s Serving) Name() string { return namePrefix + s.Backend }

// ProberName returns the name of the ServiceAccount that probes serving pods, and of its RBAC.
func (s Serving) ProberName() string { return s.Name() + "-prober" }

// ScrapeName returns the name of the ServiceAccount whose token serving pods send to kubelets,
// and of its RBAC.
func (s Serving) ScrapeName() string { return s.Name() + "-scrape" }

// MetricsAPIName returns the name of the ServiceAccount whose token serving pods send to other
// implementations of a metrics API, and of its RBAC.
func (s Serving) MetricsAPIName() string { return s.Name() + v1alpha1.MetricsAPIAccountSuffix }

// tokenAccounts returns the names of the ServiceAccounts whose tokens serving pods request.
func (s Serving) tokenAccounts() []string {
	accounts := []string{s.ScrapeName()}
	for _, suffix := range []string{v1alpha1.SourceAccountSuffix, v1alpha1.MetricsAPIAccountSuffix} {
		if s.sendsTokensOf(suffix) {
			accounts = append(accounts, s.Name()+suffix)
		}
	}
	return accounts
}

// sendsTokensOf reports whether a source gets tokens of the account with a suffix, or did by RoleBefore.
func (s Serving) sendsTokensOf(suffix string) bool {
	return slices.ContainsFunc(v1alpha1.SourceTokens(s.Sources), func(t v1alpha1.SourceToken) bool { return t.AccountSuffix == suffix }) ||
		slices.Contains(namesBefore(s.RoleBefore.Rules, "serviceaccounts/token", "create"), s.Name()+suffix)
}

// GuestName returns the name of the ServiceAccount that probes spec.existing.
func (s Serving) GuestName() string { return s.Name() + "-guest" }

// TLSSecretName returns the name of the Secret that serving pods mount.
func (s Serving) TLSSecretName() string { return s.Name() + "-tls" }

// CASecretName returns the name of the Secret with the CA's key. No pod mounts it.
func (s Serving) CASecretName() string { return s.Name() + "-ca" }

// IssuedSecretName returns the name of the Secret that cert-manager writes. No pod mounts it:
// the operator copies the certificate to TLSSecretName once clients trust its authority.
func (s Serving) IssuedSecretName() string { return s.Name() + "-issued" }

// ServerName returns the name for which the aggregator verifies the certificate.
func (s Serving) ServerName() string { return s.Name() + "." + s.Namespace + ".svc" }

// DNSNames returns the names of the serving certificate; the first is ServerName.
func (s Serving) DNSNames() []string {
	return []string{
		s.ServerName(),
		s.Name() + "." + s.Namespace,
		s.Name(),
		s.ServerName() + ".cluster.local",
	}
}

// Labels returns the labels of every object: spec.serving.labels, overridden by the operator's own.
func (s Serving) Labels() map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, s.Spec.Labels)
	maps.Copy(labels, map[string]string{
		v1alpha1.LabelBackend:    s.Backend,
		"app.kubernetes.io/name": "metrics-backend-serving",
		// Not the backend's name: an Argo CD that tracks by this label would take the objects for those of an Application
		// with that name, and prune them.
		"app.kubernetes.io/instance":   s.Name(),
		labelComponent:                 componentServing,
		"app.kubernetes.io/part-of":    "metrics-backend",
		"app.kubernetes.io/managed-by": v1alpha1.FieldOwner,
	})
	return labels
}

// SharedLabels returns the labels of the objects outside of Namespace, which would be the
// same for an operator in another namespace.
func (s Serving) SharedLabels() map[string]string {
	labels := s.Labels()
	if s.Installation != "" {
		labels[v1alpha1.LabelInstallation] = s.Installation
	}
	return labels
}

// Selector returns the selector of the serving pods, which a Deployment cannot change.
func (s Serving) Selector() map[string]string {
	return map[string]string{
		v1alpha1.LabelBackend: s.Backend,
		labelComponent:        componentServing,
	}
}

// Object is a typed apply configuration of a named object.
type Object interface {
	runtime.ApplyConfiguration
	GetName() *string
	GetNamespace() *string
	GetKind() *string
	GetAPIVersion() *string
}

// All returns all objects except Secrets and APIServices, in the order in which they are
// applied: those that pods need come before the Deployment.
func All(s Serving) []Object {
	objects := slices.Concat(
		[]Object{ServiceAccount(s), ProberServiceAccount(s)}, TokenServiceAccounts(s),
		ClusterRoles(s), ClusterRoleBindings(s),
		[]Object{AuthReaderBinding(s), Role(s), RoleBinding(s), Service(s)},
	)
	if policy := NetworkPolicy(s); policy != nil {
		objects = append(objects, policy)
	}
	if budget := PodDisruptionBudget(s); budget != nil {
		objects = append(objects, budget)
	}
	if s.Quota {
		objects = append(objects, ResourceQuota(s))
	}
	return append(objects, Deployment(s))
}
