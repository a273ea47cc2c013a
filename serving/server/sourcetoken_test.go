// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
)

// TestSourceNeverGetsServingsToken: what serving sends kube-apiserver reaches no source. One that wants a token gets
// that of the account for sources, and another one none.
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
		_, _ = io.WriteString(w, `{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [], "expirationSeconds": 600}, "status": {"token": "of-sources"}}`)
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
	eventuallyTrue(t, "there is a token", func() bool {
		_, err := p.pipeline.references.Tokens(v1alpha1.SourceAccountSuffix)("").Token()
		return err == nil
	})
	p.pipeline.sources.apply(specs, nil)
	for _, name := range []string{"open", "thanos"} {
		s, _ := p.pipeline.sources.find(name)
		if _, err := s.Evaluate(t.Context(), query.Query{Expression: "x"}, time.Now()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	want := map[string][]string{
		"kube-apiserver": {"POST /api/v1/namespaces/ns/serviceaccounts/metrics-serving-b-source/token Bearer of-serving"},
		"open":           {"POST /api/v1/query "},
		"thanos":         {"POST /api/v1/query Bearer of-sources"},
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}
