// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

var ownService = types.NamespacedName{Namespace: "metrics", Name: "cluster"}

func endpointSlice(name, service string, port int32, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: ownService.Namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		Endpoints:  endpoints,
	}
	if port != 0 {
		slice.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: &port, Protocol: ptr.To(corev1.ProtocolTCP)}}
	}
	return slice
}

func endpoint(ready *bool, addresses ...string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: addresses, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
}

func ofFamily(family discoveryv1.AddressType, slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	slice.AddressType = family
	return slice
}

func TestReadyPeers(t *testing.T) {
	tests := map[string]struct {
		slices []*discoveryv1.EndpointSlice
		want   []string
	}{
		"no slices": {},
		"ready, not ready, unknown, self": {
			slices: []*discoveryv1.EndpointSlice{endpointSlice("a", "cluster", 10443,
				endpoint(ptr.To(true), "10.0.0.2"), endpoint(ptr.To(false), "10.0.0.3"), endpoint(nil, "10.0.0.4"), endpoint(ptr.To(true), "10.0.0.1"))},
			want: []string{"10.0.0.2:10443", "10.0.0.4:10443"},
		},
		"several slices, one address twice, IPv6": {
			slices: []*discoveryv1.EndpointSlice{
				endpointSlice("a", "cluster", 10443, endpoint(nil, "10.0.0.2")),
				endpointSlice("b", "cluster", 10443, endpoint(nil, "10.0.0.2"), endpoint(nil)),
				endpointSlice("c", "cluster", 10443, endpoint(nil, "fd00::2")),
			},
			want: []string{"10.0.0.2:10443", "[fd00::2]:10443"},
		},
		"a dual-stack Service, of which this pod is an endpoint": {
			slices: []*discoveryv1.EndpointSlice{
				ofFamily(discoveryv1.AddressTypeIPv4, endpointSlice("a", "cluster", 10443, endpoint(nil, "10.0.0.1"), endpoint(nil, "10.0.0.2"))),
				ofFamily(discoveryv1.AddressTypeIPv6, endpointSlice("b", "cluster", 10443, endpoint(nil, "fd00::1"), endpoint(nil, "fd00::2"))),
			},
			want: []string{"10.0.0.2:10443"},
		},
		"a Service of the other family": {
			slices: []*discoveryv1.EndpointSlice{ofFamily(discoveryv1.AddressTypeIPv6, endpointSlice("a", "cluster", 10443, endpoint(nil, "fd00::2")))},
			want:   []string{"[fd00::2]:10443"},
		},
		"another Service":       {slices: []*discoveryv1.EndpointSlice{endpointSlice("a", "other", 10443, endpoint(nil, "10.0.0.2"))}},
		"a slice without ports": {slices: []*discoveryv1.EndpointSlice{endpointSlice("a", "cluster", 0, endpoint(nil, "10.0.0.2"))}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			for _, slice := range tc.slices {
				if err := client.Tracker().Add(slice); err != nil {
					t.Fatalf("add EndpointSlice: %v", err)
				}
			}
			p := &Service{slices: client.DiscoveryV1(), name: ownService, podIP: "10.0.0.1"}
			got, err := p.ReadyPeers(t.Context())
			if err != nil {
				t.Fatalf("ReadyPeers: %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("ready peers (-want +got):\n%s", diff)
			}
		})
	}
}

// TestServes requests from a real TLS server: the certificate must be signed by the CA and
// name the Service, and the peer must accept this pod's token.
func TestServes(t *testing.T) {
	ca, key, err := certutil.GenerateSelfSignedCertKey("cluster.metrics.svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	otherCA, otherKey, err := certutil.GenerateSelfSignedCertKey("other.metrics.svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		cert, key []byte
		// trusted is what --serving-ca-file holds.
		trusted []byte
		token   string
		want    bool
		wantErr string
	}{
		"serves it":                      {cert: ca, key: key, trusted: ca, token: "own", want: true},
		"a certificate of another CA":    {cert: ca, key: key, trusted: otherCA, token: "own", wantErr: "certificate"},
		"a certificate for another name": {cert: otherCA, key: otherKey, trusted: otherCA, token: "own", wantErr: "cluster.metrics.svc"},
		"a token that is not accepted":   {cert: ca, key: key, trusted: ca, token: "other", wantErr: "provide credentials"},
		"a CA file without certificates": {cert: ca, key: key, trusted: []byte("nothing"), token: "own", wantErr: "unable to load root certificates"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			address := servePeer(t, tc.cert, tc.key)
			caFile := filepath.Join(t.TempDir(), "ca.crt")
			if err := os.WriteFile(caFile, tc.trusted, 0o600); err != nil {
				t.Fatal(err)
			}
			// The kube-apiserver's own CA and address must not be used for a peer.
			config := &rest.Config{
				Host: "https://127.0.0.1:1", BearerToken: tc.token, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
				Proxy: func(*http.Request) (*url.URL, error) { return nil, errors.New("a proxy for a peer") },
			}
			p := &Service{name: ownService, config: config, caFile: caFile}
			got, err := p.Serves(t.Context(), address, metricsV1beta1)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want one that mentions %q", err, tc.wantErr)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Fatalf("Serves: %t, %v; want %t", got, err, tc.want)
			}
			if got, err := p.Serves(t.Context(), address, metricsV1); err != nil || got {
				t.Errorf("a version that answers 404: Serves: %t, %v; want false", got, err)
			}
			if _, err := p.Serves(t.Context(), address, endless); err == nil || !strings.Contains(err.Error(), "more than") {
				t.Errorf("a version whose discovery is too long: error %.200v", err)
			}
			if _, err := p.Serves(t.Context(), address, customV1beta2); err == nil {
				t.Error("a version that answers 503: no error, but whether it is served is not known")
			}
		})
	}
}

var endless = schema.GroupVersion{Group: "external.metrics.k8s.io", Version: "v1beta1"}

func servePeer(t *testing.T, cert, key []byte) (address string) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer own":
			http.Error(w, "who are you?", http.StatusUnauthorized)
		case r.URL.Path == "/apis/metrics.k8s.io/v1beta1":
			fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1"}`)
		case r.URL.Path == "/apis/"+endless.String():
			fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","padding":"`, strings.Repeat("x", maxBody), `"}`)
		case r.URL.Path == "/apis/metrics.k8s.io/v1":
			http.NotFound(w, r)
		default:
			http.Error(w, "busy", http.StatusServiceUnavailable)
		}
	}))
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatalf("load %s: %v", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "https://")
}

func apiService(backend string, version schema.GroupVersion, service *apiregistrationv1.ServiceReference) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version.Version + "." + version.Group, Labels: map[string]string{v1alpha1.LabelBackend: backend}},
		Spec:       apiregistrationv1.APIServiceSpec{Group: version.Group, Version: version.Version, Service: service},
	}
}

func TestRegistered(t *testing.T) {
	own := &apiregistrationv1.ServiceReference{Namespace: "metrics", Name: "cluster"}
	objects := []*apiregistrationv1.APIService{
		apiService("cluster", metricsV1, own),
		apiService("cluster", metricsV1beta1, &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "metrics-server"}),
		apiService("cluster", schema.GroupVersion{Group: "apps", Version: "v1"}, nil),
		apiService("second", customV1beta2, own),
	}
	tests := map[string]struct {
		backend string
		want    []schema.GroupVersion
	}{
		"of one backend": {backend: "cluster", want: []schema.GroupVersion{metricsV1}},
		"of any":         {want: []schema.GroupVersion{customV1beta2, metricsV1}},
		"of none":        {backend: "third"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			client := aggregatorfake.NewClientset()
			for _, o := range objects {
				if err := client.Tracker().Add(o); err != nil {
					t.Fatalf("add APIService: %v", err)
				}
			}
			selector, err := backendSelector(tc.backend)
			if err != nil {
				t.Fatalf("backendSelector: %v", err)
			}
			r := &Service{apiServices: client.ApiregistrationV1(), name: ownService, selector: selector}
			got, err := r.Registered(t.Context())
			if err != nil {
				t.Fatalf("Registered: %v", err)
			}
			byName := cmpopts.SortSlices(func(a, b schema.GroupVersion) bool { return a.String() < b.String() })
			if diff := cmp.Diff(tc.want, got, byName); diff != "" {
				t.Errorf("registered (-want +got):\n%s", diff)
			}
		})
	}
}
