// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"strings"

	"k8s.io/utils/ptr"
)

// Ports of serving pods if spec.serving.port is not set.
const (
	// DefaultPort is that on the pod network. It is also the kubelet's, so firewalls
	// between control plane and nodes allow it, such as the default rules of GKE and EKS.
	DefaultPort int32 = 10250
	// DefaultHostNetworkPort is that with hostNetwork, where the node's kubelet has 10250.
	DefaultHostNetworkPort int32 = 10443
)

// DefaultServingPort returns the port of serving pods if spec.serving.port is not set. It
// is no default of the CRD's schema: that could not depend on hostNetwork, and would be
// stored, so that a later change of hostNetwork would keep the wrong port.
func DefaultServingPort(hostNetwork bool) int32 {
	if hostNetwork {
		return DefaultHostNetworkPort
	}
	return DefaultPort
}

// Endpoints describes, for messages, where serving pods accept connections.
func (s *ServingSpec) Endpoints() string {
	port := ptr.Deref(s.Port, DefaultServingPort(s.HostNetwork))
	if s.HostNetwork {
		return fmt.Sprintf("port %d of the nodes with serving pods", port)
	}
	return fmt.Sprintf("port %d of the serving pods", port)
}

// IsUnreachable reports whether kube-apiserver's reason and message of an unavailable
// APIService mean that nothing answers at the endpoints of its Service, such as behind a
// firewall. It has the same reason for servers that answer with an error, or with a
// certificate that it does not trust.
func IsUnreachable(reason, message string) bool {
	return reason == "FailedDiscoveryCheck" && !strings.Contains(message, "bad status from") && !strings.Contains(message, "x509:")
}

// RequiredConnections says, for messages, which connections a firewall must allow so that
// kube-apiserver reaches endpoints, such as those that ServingSpec.Endpoints describes.
func RequiredConnections(endpoints string) string {
	return "kube-apiserver must be able to open TCP connections to " + endpoints +
		": if there is a firewall, allow them from the control plane to the nodes (docs/start/requirements.md, Firewalls)"
}
