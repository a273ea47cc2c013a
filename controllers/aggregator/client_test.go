// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

var v1 = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// controlPlane is several kube-apiservers behind the addresses 192.0.2.N:6443.
type controlPlane struct {
	config  *rest.Config
	servers map[string]*httptest.Server // by advertised host
	// hangs are hosts that packets get to or not, without an answer.
	hangs map[string]dialFunc
	slice *discoveryv1.EndpointSlice
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func newControlPlane(t *testing.T, handlers ...http.HandlerFunc) *controlPlane {
	t.Helper()
	p := &controlPlane{servers: map[string]*httptest.Server{}}
	p.slice = &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Ports:      []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To[int32](6443)}},
	}
	for i, handler := range handlers {
		s := httptest.NewUnstartedServer(handler)
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		host := fmt.Sprintf("192.0.2.%d", i+1)
		p.servers[host] = s
		p.slice.Endpoints = append(p.slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{host}})
		if i == 0 {
			p.config = &rest.Config{
				// The name of httptest's certificate, as a Service would be reached.
				Host: "https://example.com", BearerToken: "operator-token",
				TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(s)},
			}
		}
	}
	p.config.Dial = p.dial
	return p
}

func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func (p *controlPlane) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "example.com" {
		host = "192.0.2.1"
	}
	if hang := p.hangs[host]; hang != nil {
		return hang(ctx, network, address)
	}
	s := p.servers[host]
	if s == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no route to host")}
	}
	return (&net.Dialer{}).DialContext(ctx, network, s.Listener.Addr().String())
}

func (p *controlPlane) client(t *testing.T) *Client {
	t.Helper()
	c, err := NewClient(p.config, fake.NewClientBuilder().WithObjects(p.slice).Build())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// discovery answers with versions, each Current unless it ends with "?".
func discovery(versions ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis" || r.Header.Get("Accept") != aggregated || r.Header.Get("Authorization") != "Bearer operator-token" {
			http.Error(w, "unexpected request", http.StatusBadRequest)
			return
		}
		group := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: "metrics.k8s.io"}}
		for _, version := range versions {
			name, stale := strings.CutSuffix(version, "?")
			freshness := apidiscoveryv2.DiscoveryFreshnessCurrent
			if stale {
				freshness = apidiscoveryv2.DiscoveryFreshnessStale
			}
			group.Versions = append(group.Versions, apidiscoveryv2.APIVersionDiscovery{Version: name, Freshness: freshness})
		}
		w.Header().Set("Content-Type", aggregated)
		_ = json.NewEncoder(w).Encode(apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{group}})
	}
}

func TestDiscovered(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	body := func(contentType, content string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write([]byte(content))
		}
	}
	cases := map[string]struct {
		servers []http.HandlerFunc
		down    string
		want    Presence
		missing []string
	}{
		"gone everywhere":     {servers: []http.HandlerFunc{discovery("v1beta1"), discovery()}, want: Presence{Asked: []string{"192.0.2.1:6443", "192.0.2.2:6443"}}, missing: []string{"192.0.2.1:6443", "192.0.2.2:6443"}},
		"listed by all":       {servers: []http.HandlerFunc{discovery("v1", "v1beta1"), discovery("v1")}, want: Presence{Asked: []string{"192.0.2.1:6443", "192.0.2.2:6443"}, Listed: map[schema.GroupVersion][]string{v1: {"192.0.2.1:6443", "192.0.2.2:6443"}}}},
		"listed by one":       {servers: []http.HandlerFunc{discovery(), discovery("v1")}, want: Presence{Asked: []string{"192.0.2.1:6443", "192.0.2.2:6443"}, Listed: map[schema.GroupVersion][]string{v1: {"192.0.2.2:6443"}}}, missing: []string{"192.0.2.1:6443"}},
		"listed as stale":     {servers: []http.HandlerFunc{discovery("v1?")}, want: Presence{Asked: []string{"192.0.2.1:6443"}}, missing: []string{"192.0.2.1:6443"}},
		"one is down":         {servers: []http.HandlerFunc{discovery(), discovery()}, down: "192.0.2.2", want: Presence{Asked: []string{"192.0.2.1:6443"}, Unreachable: []string{"192.0.2.2:6443"}}, missing: []string{"192.0.2.1:6443"}},
		"one refuses":         {servers: []http.HandlerFunc{discovery(), status(http.StatusForbidden)}, want: Presence{Asked: []string{"192.0.2.1:6443"}, Unreachable: []string{"192.0.2.2:6443"}}, missing: []string{"192.0.2.1:6443"}},
		"one redirects":       {servers: []http.HandlerFunc{discovery(), http.RedirectHandler("https://example.com/", http.StatusFound).ServeHTTP}, want: Presence{Asked: []string{"192.0.2.1:6443"}, Unreachable: []string{"192.0.2.2:6443"}}, missing: []string{"192.0.2.1:6443"}},
		"one is too old":      {servers: []http.HandlerFunc{discovery(), body("application/json", `{"kind":"APIGroupList","groups":[]}`)}, want: Presence{Asked: []string{"192.0.2.1:6443"}, Unreachable: []string{"192.0.2.2:6443"}}, missing: []string{"192.0.2.1:6443"}},
		"one talks gibberish": {servers: []http.HandlerFunc{discovery(), body(aggregated, "<html>")}, want: Presence{Asked: []string{"192.0.2.1:6443"}, Unreachable: []string{"192.0.2.2:6443"}}, missing: []string{"192.0.2.1:6443"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, tc.servers...)
			// httptest's servers share one certificate.
			delete(p.servers, tc.down)
			got, err := p.client(t).Discovered(t.Context(), []schema.GroupVersion{v1})
			if err != nil {
				t.Fatal(err)
			}
			if tc.want.Listed == nil {
				tc.want.Listed = map[schema.GroupVersion][]string{}
			}
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.missing, got.Missing(v1), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
}

// A policy must not change with the order in which kube-apiservers enter themselves.
func TestPorts(t *testing.T) {
	p := newControlPlane(t, discovery())
	p.slice.Ports = []discoveryv1.EndpointPort{{Port: ptr.To[int32](16443)}, {Port: ptr.To[int32](6443)}, {Port: ptr.To[int32](16443)}, {}}
	got, err := p.client(t).Ports(t.Context())
	if diff := cmp.Diff([]int32{443, 6443, 16443}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestWithoutAddresses(t *testing.T) {
	p := newControlPlane(t, discovery())
	c := p.client(t)
	p.slice.Endpoints = nil
	if _, err := p.client(t).Discovered(t.Context(), []schema.GroupVersion{v1}); err == nil || !strings.Contains(err.Error(), "holds no address") {
		t.Errorf("without endpoints: %v", err)
	}
	c.live = fake.NewClientBuilder().Build()
	_, discovered := c.Discovered(t.Context(), []schema.GroupVersion{v1})
	_, ports := c.Ports(t.Context())
	_, _, lagging := c.Lagging(t.Context(), serviceName, func(*apiregistrationv1.APIService) bool { return true })
	for name, err := range map[string]error{"Discovered": discovered, "Ports": ports, "Lagging": lagging} {
		if err == nil || !strings.Contains(err.Error(), "default/kubernetes") {
			t.Errorf("%s without the EndpointSlice: %v", name, err)
		}
	}
}

// The credentials go to a kube-apiserver only if it is one of this cluster.
func TestDiscoveredVerifiesKubeAPIServers(t *testing.T) {
	p := newControlPlane(t, discovery("v1"))
	p.config.TLSClientConfig.ServerName = "kubernetes.default.svc"
	got, err := p.client(t).Discovered(t.Context(), []schema.GroupVersion{v1})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"192.0.2.1:6443"}, got.Unreachable); diff != "" {
		t.Errorf("unreachable (-want +got):\n%s", diff)
	}
}

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// nodeMetrics serves one page for each of the ages, in order.
func nodeMetrics(pages ...[]time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/metrics.k8s.io/v1/nodes" || r.URL.Query().Get("limit") == "" {
			http.Error(w, "unexpected request "+r.URL.String(), http.StatusBadRequest)
			return
		}
		page, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		list := map[string]any{"metadata": map[string]any{}}
		if page+1 < len(pages) {
			list["metadata"] = map[string]any{"continue": strconv.Itoa(page + 1)}
		}
		var items []any
		for _, age := range pages[page] {
			items = append(items, map[string]any{"timestamp": metav1.NewTime(now.Add(-age))})
		}
		list["items"] = items
		_ = json.NewEncoder(w).Encode(list)
	}
}

func TestFreshNodeSample(t *testing.T) {
	old, fresh := 10*time.Minute, 10*time.Second
	cases := map[string]struct {
		server http.HandlerFunc
		want   bool
		err    string
	}{
		"fresh":              {server: nodeMetrics([]time.Duration{old, fresh}), want: true},
		"all too old":        {server: nodeMetrics([]time.Duration{old, old})},
		"no nodes":           {server: nodeMetrics(nil)},
		"on the second page": {server: nodeMetrics([]time.Duration{old}, []time.Duration{fresh}), want: true},
		"pages without end": {server: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"metadata":{"continue":"again"},"items":[]}`))
		}},
		"unavailable": {server: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}, err: "GET /apis/metrics.k8s.io/v1/nodes: the server is currently unable to handle the request"},
		"garbage": {server: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`<html>`))
		}, err: "decode the answer of /apis/metrics.k8s.io/v1/nodes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := newControlPlane(t, tc.server).client(t).FreshNodeSample(t.Context(), v1, now.Add(-90*time.Second))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q in it", err, tc.err)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("got %t, %v, want %t", got, err, tc.want)
			}
		})
	}
}

func TestHostname(t *testing.T) {
	cases := map[string]struct {
		config rest.Config
		want   string
	}{
		"address":            {rest.Config{Host: "https://10.96.0.1:443"}, "10.96.0.1"},
		"address of IPv6":    {rest.Config{Host: "https://[fd00::1]:443"}, "fd00::1"},
		"host and port only": {rest.Config{Host: "kubernetes.default.svc:443", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}}, "kubernetes.default.svc"},
		"explicit name":      {rest.Config{Host: "https://10.96.0.1", TLSClientConfig: rest.TLSClientConfig{ServerName: "api.example.com"}}, "api.example.com"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &Client{config: &tc.config}
			if got, err := c.hostname(); err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
	if _, err := (&Client{config: &rest.Config{Host: "http://[::1"}}).hostname(); err == nil {
		t.Error("a malformed address passed")
	}
	if _, err := NewClient(&rest.Config{Host: "http://[::1"}, nil); err == nil {
		t.Error("a client for a malformed address")
	}
}

// The operator's own requests are told from use: serving would keep a version for
// them otherwise.
func TestVerificationIsNoUse(t *testing.T) {
	userAgent := ""
	p := newControlPlane(t, func(w http.ResponseWriter, r *http.Request) {
		userAgent = r.UserAgent()
		_, _ = w.Write([]byte(`{"items":[]}`))
	})
	if _, err := p.client(t).FreshNodeSample(t.Context(), v1, now); err != nil {
		t.Fatal(err)
	}
	if family, _, _ := strings.Cut(userAgent, "/"); !v1alpha1.IsOwnUserAgent(family) {
		t.Errorf("the user agent is %q", userAgent)
	}
}
