// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// maxConcurrentProbes bounds how many pods, or endpoints of a Service, are probed at a time.
const maxConcurrentProbes = 16

// probeTimeout bounds the probe of all endpoints of a Service: hundreds may not answer.
const probeTimeout = 30 * time.Second

// probedService is a Service of another implementation, and what its endpoints answered.
type probedService struct {
	target manifests.Target
	// missing is why the Service, or its port, does not exist, or empty.
	// namespaceTerminating: its namespace is being deleted, which counts as missing.
	missing              string
	namespaceTerminating bool
	// endpoints are the ready ones, sorted by address.
	endpoints []*probed
}

// readService finds the ready endpoints of the target. It reads around the cache, which
// holds no Services of other namespaces.
func (r *Reconciler) readService(ctx context.Context, target manifests.Target) (*probedService, error) {
	found := &probedService{target: target}
	missing := func(format string, args ...any) (*probedService, error) {
		found.missing = fmt.Sprintf(format, args...)
		return found, nil
	}
	_, ends, err := r.readNamespace(ctx, target.Namespace)
	switch {
	case err != nil:
		return nil, err
	case ends:
		// It may still answer, but not for long.
		found.namespaceTerminating = true
		return missing("namespace %q of Service %s is being deleted", target.Namespace, target)
	}
	var service corev1.Service
	err = r.APIReader.Get(ctx, client.ObjectKey{Namespace: target.Namespace, Name: target.Name}, &service)
	switch {
	case apierrors.IsNotFound(err):
		return missing("Service %s does not exist", target)
	case err != nil:
		return nil, fmt.Errorf("get Service %s: %w", target, err)
	case service.DeletionTimestamp != nil:
		return missing("Service %s is being deleted", target)
	}
	port := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == target.Port })
	if port < 0 {
		return missing("Service %s has no port %d", target, target.Port)
	}
	var slicesOf discoveryv1.EndpointSliceList
	if err := r.APIReader.List(ctx, &slicesOf, client.InNamespace(target.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: target.Name}); err != nil {
		return nil, fmt.Errorf("list EndpointSlices of Service %s: %w", target, err)
	}
	for i := range slicesOf.Items {
		// kube-apiserver connects to the Service's first address. The operator may lack the network
		// of the other family of a dual-stack Service.
		if families := service.Spec.IPFamilies; len(families) > 0 && string(families[0]) != string(slicesOf.Items[i].AddressType) {
			continue
		}
		for _, address := range readyAddresses(&slicesOf.Items[i], service.Spec.Ports[port].Name) {
			found.endpoints = append(found.endpoints, &probed{connection: servingclient.Pod{
				Address: address, ServerName: target.ServerName(), CABundle: target.CABundle,
				InsecureSkipTLSVerify: target.InsecureSkipTLSVerify, DiscoveryOnly: true,
			}})
		}
	}
	slices.SortFunc(found.endpoints, func(a, b *probed) int { return strings.Compare(a.connection.Address, b.connection.Address) })
	// An endpoint may be in two slices while they change.
	found.endpoints = slices.CompactFunc(found.endpoints, func(a, b *probed) bool { return a.connection.Address == b.connection.Address })
	return found, nil
}

// readyAddresses returns the ready addresses with the port of that name.
func readyAddresses(slice *discoveryv1.EndpointSlice, portName string) []string {
	var addresses []string
	for _, port := range slice.Ports {
		if ptr.Deref(port.Name, "") != portName || port.Port == nil {
			continue
		}
		for _, e := range slice.Endpoints {
			// Unset means ready, by the API's documentation.
			if !ptr.Deref(e.Conditions.Ready, true) {
				continue
			}
			for _, address := range e.Addresses {
				addresses = append(addresses, net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
			}
		}
	}
	return addresses
}

// probeEndpoints asks each endpoint which of the versions it serves, as an account
// without permissions.
func (r *Reconciler) probeEndpoints(ctx context.Context, found *probedService, account client.ObjectKey, token string, versions []schema.GroupVersion) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	r.ask(ctx, found.endpoints, account, token, versions)
}

// discoveryOf returns what an endpoint of the target lists as resources of the version.
func (r *Reconciler) discoveryOf(ctx context.Context, s *reconcileState, target manifests.Target, gv schema.GroupVersion) (list metav1.APIResourceList, err error) {
	found, err := r.readService(ctx, target)
	if err != nil || len(found.endpoints) == 0 {
		return list, cmp.Or(err, errors.New("it has no ready endpoint"))
	}
	connection := found.endpoints[0].connection
	if _, connection.Token, err = r.guestToken(ctx, s); err != nil {
		return list, err
	}
	err = r.Pods.Read(ctx, connection, "/apis/"+gv.String(), nil, &list)
	return list, err
}

// guestAccount returns the ServiceAccount that probes other implementations.
func (s *reconcileState) guestAccount() client.ObjectKey {
	return client.ObjectKey{Namespace: s.serving.Namespace, Name: s.serving.GuestName()}
}

// guestToken returns a token of the account without permissions, and creates the account
// if necessary.
func (r *Reconciler) guestToken(ctx context.Context, s *reconcileState) (client.ObjectKey, string, error) {
	account := s.guestAccount()
	if !s.namespace.gone {
		// Nothing can be created in a terminating namespace.
		if _, err := r.applier.Apply(ctx, s.backend.Name, manifests.GuestServiceAccount(s.serving)); err != nil {
			return account, "", err
		}
	}
	token, err := r.tokens.Token(ctx, account)
	return account, token, err
}

// servers returns the endpoints as the decisions about versions see them.
func (i *probedService) servers() lifecycle.Servers {
	var all lifecycle.Servers
	for _, e := range i.endpoints {
		s := e.server("endpoint " + e.connection.Address)
		s.Ready, s.Current, s.Template = true, true, e.connection.Address
		all = append(all, s)
	}
	return all
}
