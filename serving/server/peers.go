// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// servicePeers are the pods behind a Service.
type servicePeers struct {
	client  discoveryclient.EndpointSlicesGetter
	service types.NamespacedName
	// self is this pod's address, which is left out.
	self string
	// config has the credentials with which peers are asked: this pod's own.
	config *rest.Config
	// caFile verifies the peers. client-go shares one transport among them, and
	// reads the file again as it rotates.
	caFile string
}

// Ready implements peers.
func (p *servicePeers) Ready(ctx context.Context) ([]string, error) {
	selector := labels.Set{discoveryv1.LabelServiceName: p.service.Name}.String()
	list, err := p.client.EndpointSlices(p.service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list EndpointSlices of Service %s (this account needs list on endpointslices.discovery.k8s.io there): %w", p.service, err)
	}
	var addresses []string
	for i := range list.Items {
		addresses = append(addresses, p.readyIn(&list.Items[i])...)
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}

func (p *servicePeers) readyIn(slice *discoveryv1.EndpointSlice) []string {
	if len(slice.Ports) == 0 || slice.Ports[0].Port == nil {
		return nil
	}
	port := strconv.Itoa(int(*slice.Ports[0].Port))
	var addresses []string
	for _, endpoint := range slice.Endpoints {
		// Nil stands for ready (EndpointConditions).
		if !ptr.Deref(endpoint.Conditions.Ready, true) || len(endpoint.Addresses) == 0 || slices.Contains(endpoint.Addresses, p.self) {
			continue
		}
		addresses = append(addresses, net.JoinHostPort(endpoint.Addresses[0], port))
	}
	return addresses
}

// Serves implements peers.
func (p *servicePeers) Serves(ctx context.Context, address string, version schema.GroupVersion) (bool, error) {
	client, err := p.clientFor(address)
	if err != nil {
		return false, err
	}
	var status int
	result := client.Get().AbsPath("/apis", version.Group, version.Version).MaxRetries(0).Do(ctx).StatusCode(&status)
	switch err := result.Error(); {
	case err == nil && status == http.StatusOK:
		return true, nil
	case status == http.StatusNotFound, apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return false, errors.New("unexpected HTTP status " + strconv.Itoa(status))
}

func (p *servicePeers) clientFor(address string) (*rest.RESTClient, error) {
	config := rest.CopyConfig(p.config)
	config.Host = "https://" + address
	config.APIPath = "/apis"
	config.Insecure = false
	config.CAData, config.CAFile = nil, p.caFile
	config.ServerName = p.service.Name + "." + p.service.Namespace + ".svc"
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	// A peer is another server than the one that limits this client's rate.
	config.QPS = -1
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for it: %w", err)
	}
	return client, nil
}
