// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/bodylimit"
)

// Service reads the APIServices and the pods of the Service in front of this pod.
type Service struct {
	name types.NamespacedName
	// selector selects the APIServices that the operator created.
	selector    labels.Selector
	apiServices apiregistration.APIServicesGetter
	slices      discoveryclient.EndpointSlicesGetter
	// podIP is the address of this pod, which is no peer.
	podIP string
	// config holds this pod's own credentials, which it presents to peers.
	config *rest.Config
	// caFile verifies the peers. It is read for each request.
	caFile string
}

// NewService returns the Service of that name for the pod at podIP. Only the APIServices of
// the named MetricsBackend count; of any where backend is empty.
func NewService(config *rest.Config, name types.NamespacedName, backend, podIP, caFile string) (*Service, error) {
	selector, err := backendSelector(backend)
	if err != nil {
		return nil, fmt.Errorf("select APIServices by --backend %q: %w", backend, err)
	}
	aggregator, err := apiregistration.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of APIServices: %w", err)
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of EndpointSlices: %w", err)
	}
	return &Service{
		name: name, selector: selector, apiServices: aggregator, slices: typed.DiscoveryV1(), podIP: podIP, config: config, caFile: caFile,
	}, nil
}

func backendSelector(backend string) (labels.Selector, error) {
	if backend == "" {
		return labels.Parse(v1alpha1.LabelBackend)
	}
	return labels.ValidatedSelectorFromSet(labels.Set{v1alpha1.LabelBackend: backend})
}

// Registered implements service.
func (s *Service) Registered(ctx context.Context) ([]schema.GroupVersion, error) {
	list, err := s.apiServices.APIServices().List(ctx, metav1.ListOptions{LabelSelector: s.selector.String()})
	if err != nil {
		return nil, fmt.Errorf("list APIServices with label %s (this account needs list on apiservices.apiregistration.k8s.io): %w", s.selector, err)
	}
	var versions []schema.GroupVersion
	for i := range list.Items {
		spec := &list.Items[i].Spec
		if spec.Service != nil && spec.Service.Namespace == s.name.Namespace && spec.Service.Name == s.name.Name {
			versions = append(versions, schema.GroupVersion{Group: spec.Group, Version: spec.Version})
		}
	}
	return versions, nil
}

// ReadyPeers implements service.
func (s *Service) ReadyPeers(ctx context.Context) ([]string, error) {
	selector := labels.Set{discoveryv1.LabelServiceName: s.name.Name}.String()
	list, err := s.slices.EndpointSlices(s.name.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list EndpointSlices of Service %s (this account needs list on endpointslices.discovery.k8s.io there): %w", s.name, err)
	}
	// A dual-stack Service has slices of both families. Those of this pod's own suffice, and this
	// pod recognizes itself in no other; a Service of the other family alone has none of them.
	other := discoveryv1.AddressTypeIPv6
	if strings.Contains(s.podIP, ":") {
		other = discoveryv1.AddressTypeIPv4
	}
	isOther := func(slice discoveryv1.EndpointSlice) bool { return slice.AddressType == other }
	if own := slices.DeleteFunc(slices.Clone(list.Items), isOther); len(own) > 0 {
		list.Items = own
	}
	var addresses []string
	for i := range list.Items {
		addresses = append(addresses, s.readyIn(&list.Items[i])...)
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}

func (s *Service) readyIn(slice *discoveryv1.EndpointSlice) []string {
	if len(slice.Ports) == 0 || slice.Ports[0].Port == nil {
		return nil
	}
	port := strconv.Itoa(int(*slice.Ports[0].Port))
	var addresses []string
	for _, endpoint := range slice.Endpoints {
		// A nil condition means ready (EndpointConditions).
		if !ptr.Deref(endpoint.Conditions.Ready, true) || len(endpoint.Addresses) == 0 || slices.Contains(endpoint.Addresses, s.podIP) {
			continue
		}
		addresses = append(addresses, net.JoinHostPort(endpoint.Addresses[0], port))
	}
	return addresses
}

// Serves implements service.
func (s *Service) Serves(ctx context.Context, address string, version schema.GroupVersion) (bool, error) {
	client, err := s.clientFor(address)
	if err != nil {
		return false, err
	}
	// client-go caches no transport with a proxy function.
	defer utilnet.CloseIdleConnectionsFor(client.Client.Transport)
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

// maxBody bounds a peer's response: discovery of a version with names of many metrics.
const maxBody = 16 << 20

func (s *Service) clientFor(address string) (*rest.RESTClient, error) {
	config := bodylimit.Config(s.config, maxBody)
	config.Host = "https://" + address
	config.APIPath = "/apis"
	config.Insecure = false
	config.CAData, config.CAFile = nil, s.caFile
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	config.ServerName = s.name.Name + "." + s.name.Namespace + ".svc"
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	// The client's rate limit is for kube-apiserver, not for peers.
	config.QPS = -1
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for it: %w", err)
	}
	return client, nil
}
