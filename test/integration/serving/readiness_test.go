//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const versionsCheck = "registered-versions"

// machineAddress returns an address of this machine that is not loopback, which
// EndpointSlices may not hold. Traffic to it does not leave the machine.
func machineAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatalf("read this machine's addresses: %v", err)
	}
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.IsGlobalUnicast() && network.IP.To4() != nil {
			return network.IP.String()
		}
	}
	t.Fatal("this machine has no IPv4 address but loopback, which an EndpointSlice may not hold: give one to an interface, for example `ip address add 192.0.2.1/32 dev lo`")
	return ""
}

// setPeer writes the Service's EndpointSlice with one endpoint.
func setPeer(t *testing.T, service string, port int32, ready bool) {
	t.Helper()
	slices := cluster.client.DiscoveryV1().EndpointSlices(servingNamespace)
	if err := slices.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service}); err != nil {
		t.Fatalf("delete EndpointSlices: %v", err)
	}
	_, err := slices.Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{GenerateName: service + "-", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{machineAddress(t)}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: &port, Protocol: ptr.To(corev1.ProtocolTCP)}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create an EndpointSlice: %v", err)
	}
	t.Cleanup(func() {
		err := slices.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil {
			t.Errorf("delete EndpointSlices: %v", err)
		}
	})
}

// TestFirstReadinessByVersion is an image rollback in small: pods of an image without v1 start beside one that serves it.
func TestFirstReadinessByVersion(t *testing.T) {
	inTurn(t)
	const service = "gated"
	flags := []string{"--service-name=" + service, "--service-namespace=" + servingNamespace}
	old := append([]string{"--runtime-config=metrics.k8s.io/v1=false"}, flags...)
	reader := cluster.token(t, "reader")

	current, _ := startAlone(t, service, flags...)
	current.waitReady(t)
	setPeer(t, service, current.port, true)
	cluster.register(t, service, current.port, "v1", "v1beta1")

	rollback := startOn(t, service, old...)
	reason := ""
	outcome.Eventually(t, 30*time.Second, "the old pod waits for its versions only", func(context.Context) error {
		err := rollback.ready(t.Context())
		if err == nil {
			t.Fatal("the old pod is ready although v1 is registered and a ready peer serves it")
		}
		for _, part := range []string{"[+]authentication-config ok", "[+]informers ok", "[+]rates ok", "[-]" + versionsCheck + " failed"} {
			if !strings.Contains(err.Error(), part) {
				return fmt.Errorf("%q is missing: %w", part, err)
			}
		}
		var status int
		status, reason, err = rollback.get(t.Context(), "/readyz/"+versionsCheck, reader)
		if err != nil || status != http.StatusInternalServerError {
			return fmt.Errorf("the reason: status %d, %w", status, err)
		}
		if strings.Contains(reason, "waiting for rates") {
			return errors.New("the gate is being tried for the first time")
		}
		return nil
	})
	checkText(t, reason, []string{"metrics.k8s.io/v1 is registered", machineAddress(t), "APIService v1.metrics.k8s.io"}, nil)

	// No ready peer serves v1: there is nothing to wait for.
	setPeer(t, service, current.port, false)
	outcome.Eventually(t, 20*time.Second, "the old pod is ready when no ready peer serves v1", func(context.Context) error { return rollback.ready(t.Context()) })

	// Once ready, it stays so, whatever is registered and ready.
	setPeer(t, service, current.port, true)
	second := startOn(t, service, old...)
	outcome.Eventually(t, 30*time.Second, "a second old pod waits", func(context.Context) error { return second.logged("metrics.k8s.io/v1 is registered and ready pod") })
	if err := rollback.ready(t.Context()); err != nil {
		t.Errorf("a pod that was ready is so no longer: %v", err)
	}

	// The operator retires v1.
	cluster.deleteAPIService(t, "v1.metrics.k8s.io")
	outcome.Eventually(t, 20*time.Second, "the second old pod is ready when v1 is retired", func(context.Context) error { return second.ready(t.Context()) })
	cluster.createAPIService(t, service, current.port, metricsVersion("v1"), 100)
	third := startOn(t, service, old...)
	outcome.Eventually(t, 30*time.Second, "a third old pod waits", func(context.Context) error { return third.logged("metrics.k8s.io/v1 is registered and ready pod") })
	for name, p := range map[string]*process{"first": rollback, "second": second} {
		if err := p.ready(t.Context()); err != nil {
			t.Errorf("the %s pod's readiness was taken away by an APIService that came later: %v", name, err)
		}
	}
}
