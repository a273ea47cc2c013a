// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestNodeFrom(t *testing.T) {
	addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	got := NodeFrom(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n1", UID: "u", Labels: map[string]string{"a": "b"},
			Annotations: map[string]string{v1alpha1.AnnotationMetricsPath: "/x", "other": "y"},
		},
		Status: corev1.NodeStatus{
			Addresses:       addresses,
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10255}},
		},
	})
	want := &Node{Name: "n1", UID: "u", Labels: map[string]string{"a": "b"}, Path: "/x", Addresses: addresses, KubeletPort: 10255}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("NodeFrom() (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&Node{}, NodeFrom(&corev1.Node{})); diff != "" {
		t.Errorf("NodeFrom() of an empty node (-want +got):\n%s", diff)
	}
}

func TestAddress(t *testing.T) {
	const (
		internal, external = corev1.NodeInternalIP, corev1.NodeExternalIP
		hostname, dns      = corev1.NodeHostName, corev1.NodeInternalDNS
	)
	all := []corev1.NodeAddress{
		{Type: hostname, Address: "n1"}, {Type: external, Address: "198.51.100.1"},
		{Type: internal, Address: "192.0.2.1"}, {Type: internal, Address: "2001:db8::1"},
	}
	var many []corev1.NodeAddress
	for i := range maxHosts + 1 {
		many = append(many, corev1.NodeAddress{Type: internal, Address: fmt.Sprintf("192.0.2.%d", i)})
	}
	tests := map[string]struct {
		addresses []corev1.NodeAddress
		types     []corev1.NodeAddressType
		// want are the addresses to try.
		want string
	}{
		"the first type that is there":  {all, []corev1.NodeAddressType{dns, external, internal}, "198.51.100.1"},
		"all of a type":                 {all, []corev1.NodeAddressType{internal}, "192.0.2.1 2001:db8::1"},
		"dual stack, IPv6 first":        {[]corev1.NodeAddress{all[3], all[2]}, []corev1.NodeAddressType{internal}, "2001:db8::1 192.0.2.1"},
		"twice the same":                {[]corev1.NodeAddress{all[2], all[2]}, []corev1.NodeAddressType{internal}, "192.0.2.1"},
		"more than are tried":           {many, []corev1.NodeAddressType{internal}, "192.0.2.0 192.0.2.1 192.0.2.2 192.0.2.3"},
		"no such type":                  {all, []corev1.NodeAddressType{dns}, ""},
		"none":                          {nil, v1alpha1.DefaultAddressTypes(), ""},
		"an IP that is none":            {[]corev1.NodeAddress{{Type: internal, Address: "evil.example"}, all[0]}, []corev1.NodeAddressType{internal, hostname}, "n1"},
		"an IP with a port":             {[]corev1.NodeAddress{{Type: internal, Address: "192.0.2.1:22"}}, []corev1.NodeAddressType{internal}, ""},
		"an IP with a zone":             {[]corev1.NodeAddress{{Type: internal, Address: "fe80::1%eth0"}}, []corev1.NodeAddressType{internal}, ""},
		"a name with a path":            {[]corev1.NodeAddress{{Type: hostname, Address: "n1/x"}}, []corev1.NodeAddressType{hostname}, ""},
		"a name with a user":            {[]corev1.NodeAddress{{Type: hostname, Address: "a@n1"}}, []corev1.NodeAddressType{hostname}, ""},
		"an empty name":                 {[]corev1.NodeAddress{{Type: hostname}}, []corev1.NodeAddressType{hostname}, ""},
		"a name that is an IP":          {[]corev1.NodeAddress{{Type: hostname, Address: "192.0.2.9"}}, []corev1.NodeAddressType{hostname}, "192.0.2.9"},
		"a name in capitals, with dots": {[]corev1.NodeAddress{{Type: dns, Address: "IP-10-0-0-1.ec2.internal"}}, []corev1.NodeAddressType{dns}, "IP-10-0-0-1.ec2.internal"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := &Node{Name: "n1", Addresses: tt.addresses}
			_, hosts, err := n.endpoint(&settings{Settings: Settings{AddressTypes: tt.types}}, nil)
			if got := strings.Join(hosts, " "); got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("endpoint() = %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestEndpointPort(t *testing.T) {
	n := testNode("n1", "192.0.2.1")
	n.KubeletPort = 70000
	_, _, err := n.endpoint(&settings{Settings: testSettings()}, nil)
	if err == nil || !strings.Contains(err.Error(), "scrape.port") {
		t.Errorf("endpoint() with port 70000: %v", err)
	}
}

func TestMetricsPath(t *testing.T) {
	for annotation, want := range map[string]string{
		"":                           "/metrics/resource",
		"/metrics/resource":          "/metrics/resource",
		"/stats/metrics-v1.2_x~":     "/stats/metrics-v1.2_x~",
		"api/v1/metrics":             "/api/v1/metrics",
		"/":                          "/",
		"/" + strings.Repeat("a", 9): "/aaaaaaaaa",
	} {
		if got, err := metricsPath(annotation); err != nil || got != want {
			t.Errorf("metricsPath(%q) = %q, %v, want %q", annotation, got, err, want)
		}
	}
	for _, annotation := range []string{
		"/a/", "//host/a", "/a/../b", "/a/./b", "/..", "/a?b=c", "/a#b", "/a%2e", "/a b", "/a\n", "/a\x00", "/é", "https://evil.example/",
		"/a\\b", "/" + strings.Repeat("a", maxPathLength),
	} {
		if got, err := metricsPath(annotation); err == nil {
			t.Errorf("metricsPath(%q) = %q, want an error", annotation, got)
		} else if len(err.Error()) > 500 {
			t.Errorf("metricsPath(): an error of %d characters", len(err.Error()))
		}
	}
}
