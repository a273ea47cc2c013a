// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// asksAtOnce bounds how many endpoints of a foreign Service are asked at a time.
const asksAtOnce = 16

// probeTimeout bounds how long all endpoints of a foreign Service are asked: there
// may be hundreds, and none that answers.
const probeTimeout = 30 * time.Second

// implementation is what answers at a Service that someone else runs.
type implementation struct {
	target manifests.Target
	// missing: there is no such Service, or no such port of it. why says which.
	// ending: its namespace is being deleted, which is missing too.
	missing, ending bool
	why             string
	// endpoints are the ready ones, in the order of their addresses.
	endpoints []endpoint
}

// endpoint is one ready address of a Service and what it answered.
type endpoint struct {
	address string
	answer  *servingclient.Answer
	err     error
}

// readImplementation finds the ready endpoints behind the target. It reads around
// the cache, which holds no Service of the cluster at large.
func (r *Reconciler) readImplementation(ctx context.Context, target manifests.Target) (*implementation, error) {
	found := &implementation{target: target}
	namespace := metadata(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := r.Client.Get(ctx, client.ObjectKey{Name: target.Namespace}, namespace)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("get namespace %s: %w", target.Namespace, err)
	case err == nil && namespace.DeletionTimestamp != nil:
		// It may answer still, but not for long.
		found.missing, found.ending = true, true
		found.why = fmt.Sprintf("namespace %q of Service %s is being deleted", target.Namespace, target)
		return found, nil
	}
	var service corev1.Service
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: target.Namespace, Name: target.Name}, &service)
	switch {
	case apierrors.IsNotFound(err):
		found.missing, found.why = true, fmt.Sprintf("Service %s does not exist", target)
		return found, nil
	case err != nil:
		return nil, fmt.Errorf("get Service %s: %w", target, err)
	case service.DeletionTimestamp != nil:
		found.missing, found.why = true, fmt.Sprintf("Service %s is being deleted", target)
		return found, nil
	}
	port := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == target.Port })
	if port < 0 {
		found.missing, found.why = true, fmt.Sprintf("Service %s has no port %d", target, target.Port)
		return found, nil
	}
	var slicesOf discoveryv1.EndpointSliceList
	if err := r.Live.List(ctx, &slicesOf, client.InNamespace(target.Namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: target.Name}); err != nil {
		return nil, fmt.Errorf("list EndpointSlices of Service %s: %w", target, err)
	}
	for i := range slicesOf.Items {
		for _, address := range readyAddresses(&slicesOf.Items[i], service.Spec.Ports[port].Name) {
			found.endpoints = append(found.endpoints, endpoint{address: address})
		}
	}
	slices.SortFunc(found.endpoints, func(a, b endpoint) int { return strings.Compare(a.address, b.address) })
	// The two families of a dual-stack Service have slices of their own, and while
	// slices change an endpoint may be in two of them.
	found.endpoints = slices.CompactFunc(found.endpoints, func(a, b endpoint) bool { return a.address == b.address })
	return found, nil
}

// readyAddresses are those that take requests at the port of that name.
func readyAddresses(slice *discoveryv1.EndpointSlice, portName string) []string {
	var addresses []string
	for _, port := range slice.Ports {
		if ptr.Deref(port.Name, "") != portName || port.Port == nil {
			continue
		}
		for _, e := range slice.Endpoints {
			// Nothing said means ready (the field's own documentation).
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

// ask asks each endpoint by itself which of the versions it serves, as an account
// without any rights.
func (r *Reconciler) ask(ctx context.Context, found *implementation, account client.ObjectKey, token string, versions []schema.GroupVersion) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	places := make(chan struct{}, asksAtOnce)
	var asked sync.WaitGroup
	for i := range found.endpoints {
		e := &found.endpoints[i]
		asked.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			e.answer, e.err = r.Pods.Ask(ctx, servingclient.Pod{
				Address: e.address, ServerName: found.target.ServerName(),
				CABundle: found.target.CABundle, InsecureSkipTLSVerify: found.target.InsecureSkipTLSVerify,
				Token: token, DiscoveryOnly: true,
			}, versions)
		})
	}
	asked.Wait()
	for _, e := range found.endpoints {
		if errors.Is(e.err, servingclient.ErrUnauthorized) {
			r.tokens.Forget(account)
		}
	}
}

// guestAccount is the ServiceAccount with whose token other implementations are asked.
func (s *scope) guestAccount() client.ObjectKey {
	return client.ObjectKey{Namespace: s.serving.Namespace, Name: s.serving.GuestName()}
}

// guestToken returns a token of the account that has no rights, which is made
// when it is first needed.
func (r *Reconciler) guestToken(ctx context.Context, s *scope) (client.ObjectKey, string, error) {
	account := s.guestAccount()
	if !s.withoutNamespace {
		// Nothing can be made in a namespace that is being deleted.
		if _, err := r.applier.Apply(ctx, s.backend.Name, manifests.GuestServiceAccount(s.serving)); err != nil {
			return account, "", err
		}
	}
	token, err := r.tokens.Token(ctx, account)
	return account, token, err
}

// failed is the first endpoint that could not be asked, or nil.
func (i *implementation) failed() *endpoint {
	for n := range i.endpoints {
		if i.endpoints[n].err != nil {
			return &i.endpoints[n]
		}
	}
	return nil
}

// allAnswered tells whether there is an endpoint and every one answered.
func (i *implementation) allAnswered() bool {
	return len(i.endpoints) > 0 && !slices.ContainsFunc(i.endpoints, func(e endpoint) bool { return e.answer == nil })
}

// refusesAccount tells whether an endpoint does not take the account's token.
func (i *implementation) refusesAccount() bool {
	return slices.ContainsFunc(i.endpoints, func(e endpoint) bool { return errors.Is(e.err, servingclient.ErrUnauthorized) })
}

// lacking are the endpoints that said they do not serve the version.
func (i *implementation) lacking(gv schema.GroupVersion) []string {
	var addresses []string
	for _, e := range i.endpoints {
		if e.answer != nil && !e.answer.Serves[gv] {
			addresses = append(addresses, e.address)
		}
	}
	return addresses
}

// someServe tells whether an endpoint said that it serves the version.
func (i *implementation) someServe(gv schema.GroupVersion) bool {
	return slices.ContainsFunc(i.endpoints, func(e endpoint) bool { return e.answer != nil && e.answer.Serves[gv] })
}

// servesAll tells whether there is an endpoint and every one serves the version.
func (i *implementation) servesAll(gv schema.GroupVersion) bool {
	return len(i.endpoints) > 0 && !slices.ContainsFunc(i.endpoints, func(e endpoint) bool {
		return e.answer == nil || !e.answer.Serves[gv]
	})
}
