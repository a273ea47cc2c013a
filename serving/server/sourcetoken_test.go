// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
)

// TestSourceNeverGetsServingsToken: what serving sends kube-apiserver reaches no source. One that wants a token gets
// that of the account for sources, another implementation that of its own account, and another source none.
func TestSourceNeverGetsServingsToken(t *testing.T) {
	var mu sync.Mutex
	seen := map[string][]string{}
	record := func(who string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if text := r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization"); !slices.Contains(seen[who], text) {
			seen[who] = append(seen[who], text)
		}
	}
	kubeAPIServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record("kube-apiserver", r)
		w.Header().Set("Content-Type", "application/json")
		switch path.Base(path.Dir(r.URL.Path)) {
		case "services":
			_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "Service", "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}}`)
		case "metrics-serving-b-source":
			_, _ = io.WriteString(w, `{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [], "expirationSeconds": 600}, "status": {"token": "of-sources"}}`)
		case "metrics-serving-b-metricsapi":
			_, _ = io.WriteString(w, `{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [], "expirationSeconds": 600}, "status": {"token": "of-metricsapi"}}`)
		}
	}))
	defer kubeAPIServer.Close()
	source := func(name string, authentication v1alpha1.SourceAuthentication) v1alpha1.SourceSpec {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			record(name, r)
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"status": "success", "data": {"resultType": "vector", "result": []}}`)
		}))
		t.Cleanup(server.Close)
		spec := prometheusAt(name, server.URL)
		spec.Prometheus.Authentication = authentication
		return spec
	}
	specs := []v1alpha1.SourceSpec{
		source("open", v1alpha1.SourceAuthentication{}),
		source("thanos", v1alpha1.SourceAuthentication{ServiceAccountToken: &v1alpha1.SourceServiceAccountToken{}}),
	}
	keda := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record("keda", r)
		if strings.HasSuffix(r.URL.Path, "/v1beta1") {
			_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "APIResourceList"}`)
			return
		}
		_, _ = io.WriteString(w, `{"apiVersion": "external.metrics.k8s.io/v1beta1", "kind": "ExternalMetricValueList", "items": []}`)
	}))
	defer keda.Close()
	specs = append(specs, v1alpha1.SourceSpec{Name: "keda", MetricsAPI: &v1alpha1.MetricsAPISource{
		Service: v1alpha1.ExistingService{Namespace: "keda", Name: "keda-metrics", Port: ptr.To(int32(keda.Listener.Addr().(*net.TCPAddr).Port))},
		Group:   v1alpha1.ExternalMetricsGroup, TLS: v1alpha1.SourceTLS{InsecureSkipTLSVerify: true},
	}})

	initial, err := config.SettingsFrom(&v1alpha1.MetricsBackendSpec{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := unreachableKubeconfig(t)
	o := parsedOptions(t, "--kubeconfig="+kubeconfig, "--service-namespace=ns", "--service-name=metrics-serving-b")
	p, err := o.newComponents(&rest.Config{Host: kubeAPIServer.URL, BearerToken: "of-serving"}, clock.RealClock{}, initial)
	if err != nil {
		t.Fatal(err)
	}
	p.pipeline.references.Watch(&v1alpha1.MetricsBackendSpec{Sources: specs})
	go p.pipeline.references.Run(t.Context())
	for _, suffix := range []string{v1alpha1.SourceAccountSuffix, v1alpha1.MetricsAPIAccountSuffix} {
		eventuallyTrue(t, "there is a token", func() bool {
			_, err := p.pipeline.references.Tokens(suffix)("").Token()
			return err == nil
		})
	}
	p.pipeline.sources.apply(specs)
	for name, expression := range map[string]string{"open": "x", "thanos": "x", "keda": "/namespaces/shop/x"} {
		s, _ := p.pipeline.sources.find(name)
		if _, err := s.Evaluate(t.Context(), query.Query{Expression: expression}, time.Now()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	want := map[string][]string{
		"kube-apiserver": {
			"GET /api/v1/namespaces/keda/services/keda-metrics Bearer of-serving",
			"POST /api/v1/namespaces/ns/serviceaccounts/metrics-serving-b-metricsapi/token Bearer of-serving",
			"POST /api/v1/namespaces/ns/serviceaccounts/metrics-serving-b-source/token Bearer of-serving",
		},
		"open":   {"POST /api/v1/query "},
		"thanos": {"POST /api/v1/query Bearer of-sources"},
		"keda":   {"GET /apis/external.metrics.k8s.io/v1beta1 Bearer of-metricsapi", "GET /apis/external.metrics.k8s.io/v1beta1/namespaces/shop/x Bearer of-metricsapi"},
	}
	for _, requests := range seen {
		slices.Sort(requests)
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
