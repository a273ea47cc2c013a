// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	defaultPath   = "/metrics/resource"
	maxPathLength = 1024
)

// Node is the part of a Node object that the source uses. It is immutable.
type Node struct {
	Name   string
	UID    types.UID
	Labels map[string]string
	// Path is the value of the annotation v1alpha1.AnnotationMetricsPath, if any.
	Path string
	// Addresses are those in the node's status.
	Addresses []corev1.NodeAddress
	// KubeletPort is that in the node's status, or 0.
	KubeletPort int32
}

// NodeFrom converts a Node object, which must not be changed afterwards: the result
// shares its labels and addresses.
func NodeFrom(node *corev1.Node) *Node {
	return &Node{
		Name:        node.Name,
		UID:         node.UID,
		Labels:      node.Labels,
		Path:        node.Annotations[v1alpha1.AnnotationMetricsPath],
		Addresses:   node.Status.Addresses,
		KubeletPort: node.Status.DaemonEndpoints.KubeletEndpoint.Port,
	}
}

func (n *Node) equal(o *Node) bool {
	return n.Name == o.Name && n.UID == o.UID && n.sameEndpoint(o) && maps.Equal(n.Labels, o.Labels)
}

func (n *Node) sameEndpoint(o *Node) bool {
	return n.Path == o.Path && n.KubeletPort == o.KubeletPort && slices.Equal(n.Addresses, o.Addresses)
}

// endpoint is where a kubelet answers on each of its node's addresses.
type endpoint struct{ port, path string }

// at returns the URL at an address without brackets.
func (e endpoint) at(host string) *url.URL {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, e.port), Path: e.path}
}

// endpoint returns the node's endpoint, and the addresses to try, appended to hosts.
// Addresses, port and annotation are untrusted input that decides where the token is
// sent, so only a plain host, port and path is accepted.
func (n *Node) endpoint(s *settings, hosts []string) (endpoint, []string, error) {
	hosts = n.hosts(hosts, s.AddressTypes)
	if len(hosts) == 0 {
		return endpoint{}, nil, fmt.Errorf("the node's status has no usable address of the types %v: set spec.resourceMetrics.scrape.addressTypes to a type that it has", s.AddressTypes)
	}
	p, err := metricsPath(n.Path)
	if err != nil {
		return endpoint{}, nil, err
	}
	port := cmp.Or(s.Port, n.KubeletPort, v1alpha1.DefaultKubeletPort)
	if port < 1 || port > 65535 {
		return endpoint{}, nil, fmt.Errorf("the kubelet port %d in the node's status is not a TCP port: set spec.resourceMetrics.scrape.port", port)
	}
	return endpoint{port: strconv.Itoa(int(port)), path: p}, hosts, nil
}

func validAddress(a corev1.NodeAddress) bool {
	if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
		ip, err := netip.ParseAddr(a.Address)
		return err == nil && ip.Zone() == ""
	}
	return len(validation.IsDNS1123Subdomain(strings.ToLower(a.Address))) == 0
}

// metricsPath returns the path to request. Like metrics-server, it accepts a missing
// leading slash.
func metricsPath(annotation string) (string, error) {
	if annotation == "" {
		return defaultPath, nil
	}
	p := annotation
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	odd := func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsGraphic(r) || strings.ContainsRune(" ?#%\\\"<>", r)
	}
	if len(p) > maxPathLength || p != path.Clean(p) || strings.ContainsFunc(p, odd) {
		return "", fmt.Errorf("the annotation %s=%.64q is not a clean absolute path such as %s (no query, no escapes, no dots, at most %d characters): correct or remove it",
			v1alpha1.AnnotationMetricsPath, annotation, defaultPath, maxPathLength)
	}
	return p, nil
}
