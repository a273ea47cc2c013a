// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
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

// Node is what the source needs to know of a Node object. It is immutable once
// handed over.
type Node struct {
	Name   string
	UID    types.UID
	Labels map[string]string
	// Path is the value of the annotation v1alpha1.AnnotationMetricsPath; empty
	// where the node has none.
	Path string
	// Addresses as in the node's status.
	Addresses []corev1.NodeAddress
	// KubeletPort as in the node's status; 0 where it says none.
	KubeletPort int32
}

// NodeFrom takes from a Node object what the source needs. It shares the
// object's labels and addresses, as an informer's objects are never changed.
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

// endpoint is where a kubelet is asked.
type endpoint struct {
	// host is the address without brackets: the name to verify.
	host string
	url  url.URL
}

// endpoint picks the node's address, the first type in the order of the
// settings that the node has, and builds the URL. Addresses, port and
// annotation are foreign input: whoever may write them says where the token of
// the serving component goes, so nothing but a plain host, port and path passes.
func (n *Node) endpoint(s *settings) (endpoint, error) {
	host := n.address(s.AddressTypes)
	if host == "" {
		return endpoint{}, fmt.Errorf("the node's status has no usable address of the types %v: set spec.resourceMetrics.scrape.addressTypes to a type that it has", s.AddressTypes)
	}
	p, err := metricsPath(n.Path)
	if err != nil {
		return endpoint{}, err
	}
	port := s.Port
	if port == 0 {
		port = n.KubeletPort
	}
	if port == 0 {
		port = v1alpha1.DefaultKubeletPort
	}
	if port < 1 || port > 65535 {
		return endpoint{}, fmt.Errorf("the kubelet port %d in the node's status is not a TCP port: set spec.resourceMetrics.scrape.port", port)
	}
	return endpoint{
		host: host,
		url:  url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(port))), Path: p},
	}, nil
}

func (n *Node) address(preferred []corev1.NodeAddressType) string {
	for _, wanted := range preferred {
		for _, a := range n.Addresses {
			if a.Type == wanted && validAddress(a) {
				return a.Address
			}
		}
	}
	return ""
}

func validAddress(a corev1.NodeAddress) bool {
	if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
		ip, err := netip.ParseAddr(a.Address)
		return err == nil && ip.Zone() == ""
	}
	return len(validation.IsDNS1123Subdomain(strings.ToLower(a.Address))) == 0
}

// metricsPath returns the path to ask for. A leading slash may be missing, as
// metrics-server lets it.
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
