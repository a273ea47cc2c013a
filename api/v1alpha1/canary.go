// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// The canary API is served by every serving pod. The operator registers it for at most
// half a minute before it takes over someone else's APIService, and requests it through
// each kube-apiserver, to find out whether they reach the pods. It is a group of ours:
// registering a version of a metrics group would already be the takeover, since clients
// use the preferred version whether or not it is available.
const (
	CanaryGroup    = "canary.metricsbackend.io"
	CanaryVersion  = "v1alpha1"
	CanaryResource = "canaries"
	CanaryKind     = "Canary"

	// LabelCanary on the APIService of the canary API names the MetricsBackend whose
	// pods it points to. It does not have LabelBackend: no pod has to serve it to become
	// ready.
	LabelCanary = "metricsbackend.io/canary"
)

// AnnotationUnverified on an APIService of ours, with the value "true", means that it was
// taken over, and requests through kube-apiserver have not yet succeeded for long enough.
// Until then it goes back to its previous owner if they fail.
const AnnotationUnverified = "metricsbackend.io/unverified"
