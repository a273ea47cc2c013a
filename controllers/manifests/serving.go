// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests builds the objects that a MetricsBackend consists of, one
// object a file, as typed apply configurations. Builders are pure: the same
// Serving gives the same objects, so that a steady state can be recognised.
//
// Labels and annotations of the MetricsBackend itself are never copied to a
// child: GitOps tools track objects by them and would prune the children.
package manifests

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// ContainerName is the name of the serving container.
	ContainerName = "serving"
	// PortName names the port of container, Service and probes. The aggregator
	// finds a Service's endpoints by it.
	PortName = "https"
	// ServicePort is the port of the Service, and the default of an APIService.
	ServicePort int32 = 443

	// componentServing is the value of app.kubernetes.io/component, and part of
	// the Deployment's selector, which is immutable.
	componentServing = "serving"
	labelComponent   = "app.kubernetes.io/component"

	namePrefix = "metrics-serving-"
)

// Serving is what the objects of one MetricsBackend are made from.
type Serving struct {
	// Backend is the name of the MetricsBackend.
	Backend string
	// Namespace is where the namespaced objects are.
	Namespace string
	// Image is the container image.
	Image string
	// KubeletPort is the port of the kubelets, for the NetworkPolicy.
	KubeletPort int32
	// APIServerPorts are those that kube-apiservers listen on, for the NetworkPolicy.
	APIServerPorts []int32
	// AccountUID is the UID of the pods' ServiceAccount.
	AccountUID types.UID
	// Spec is spec.serving with all defaults set.
	Spec v1alpha1.ServingSpec
	// Sources are those of the spec: for the Secrets that they name, and their ports.
	Sources []v1alpha1.SourceSpec
	// CustomMetrics and ExternalMetrics say which of these groups the spec names.
	CustomMetrics, ExternalMetrics bool
}

// Name is the name of every object of which there is one; others add a suffix.
func (s Serving) Name() string { return namePrefix + s.Backend }

// ProberName is the name of the ServiceAccount that asks serving pods what they
// serve, and of its RBAC.
func (s Serving) ProberName() string { return s.Name() + "-prober" }

// GuestName is the name of the ServiceAccount that asks implementations which
// someone else runs.
func (s Serving) GuestName() string { return s.Name() + "-guest" }

// TLSSecretName is the name of the Secret that serving pods mount.
func (s Serving) TLSSecretName() string { return s.Name() + "-tls" }

// CASecretName is the name of the Secret with the CA's key. No pod mounts it.
func (s Serving) CASecretName() string { return s.Name() + "-ca" }

// IssuedSecretName is the name of the Secret that cert-manager keeps. No pod
// mounts it: the operator takes the certificate over into TLSSecretName once
// clients trust its authority.
func (s Serving) IssuedSecretName() string { return s.Name() + "-issued" }

// ServerName is the name for which the aggregator verifies the certificate.
func (s Serving) ServerName() string { return s.Name() + "." + s.Namespace + ".svc" }

// DNSNames are the names of the serving certificate; the first is ServerName.
func (s Serving) DNSNames() []string {
	return []string{
		s.ServerName(),
		s.Name() + "." + s.Namespace,
		s.Name(),
		s.ServerName() + ".cluster.local",
	}
}

// Labels are the labels of every object.
func (s Serving) Labels() map[string]string {
	return map[string]string{
		v1alpha1.LabelBackend:          s.Backend,
		"app.kubernetes.io/name":       "metrics-backend-serving",
		"app.kubernetes.io/instance":   s.Backend,
		labelComponent:                 componentServing,
		"app.kubernetes.io/part-of":    "metrics-backend",
		"app.kubernetes.io/managed-by": v1alpha1.FieldOwner,
	}
}

// Selector selects the serving pods. It is immutable in a Deployment, so it
// stays as it is for ever.
func (s Serving) Selector() map[string]string {
	return map[string]string{
		v1alpha1.LabelBackend: s.Backend,
		labelComponent:        componentServing,
	}
}
