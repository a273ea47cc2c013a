// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Target is where an APIService leads, and how kube-apiserver verifies what
// answers there.
type Target struct {
	// Namespace, Name and Port are those of the Service.
	Namespace, Name string
	Port            int32
	// CABundle is PEM; nil with InsecureSkipTLSVerify.
	CABundle []byte
	// InsecureSkipTLSVerify verifies nothing.
	InsecureSkipTLSVerify bool
}

// Target is the Service of the serving pods, verified with caBundle (PEM).
func (s Serving) Target(caBundle []byte) Target {
	return Target{Namespace: s.Namespace, Name: s.Name(), Port: ServicePort, CABundle: caBundle}
}

// ExistingTarget is the Service of an implementation that someone else runs.
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

// ServerName is the name for which the aggregator verifies the certificate.
func (t Target) ServerName() string { return t.Name + "." + t.Namespace + ".svc" }

// String is the Service as NAMESPACE/NAME.
func (t Target) String() string { return t.Namespace + "/" + t.Name }
