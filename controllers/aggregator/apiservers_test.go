// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

const serviceName = "v1.metrics.k8s.io"

// apiService answers with an APIService that has the bundle, as a watch cache does.
func apiService(name, bundle string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		want := "/apis/apiregistration.k8s.io/v1/apiservices/" + serviceName + "?resourceVersion=0"
		if r.URL.String() != want || r.Header.Get("Authorization") != "Bearer operator-token" {
			http.Error(w, "unexpected request "+r.URL.String(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       apiregistrationv1.APIServiceSpec{CABundle: []byte(bundle)},
		})
	}
}

func TestLagging(t *testing.T) {
	newest, former := apiService(serviceName, "new"), apiService(serviceName, "old")
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	second := []string{"192.0.2.2:6443"}
	cases := map[string]struct {
		servers              []http.HandlerFunc
		down                 string
		lagging, unreachable []string
	}{
		"all follow":             {servers: []http.HandlerFunc{newest, newest}},
		"one lags":               {servers: []http.HandlerFunc{newest, former}, lagging: second},
		"all lag":                {servers: []http.HandlerFunc{former, former}, lagging: []string{"192.0.2.1:6443", "192.0.2.2:6443"}},
		"one does not have it":   {servers: []http.HandlerFunc{newest, status(http.StatusNotFound)}, lagging: second},
		"one is down":            {servers: []http.HandlerFunc{newest, newest}, down: "192.0.2.2", unreachable: second},
		"one refuses":            {servers: []http.HandlerFunc{newest, status(http.StatusForbidden)}, unreachable: second},
		"one is starting":        {servers: []http.HandlerFunc{newest, status(http.StatusServiceUnavailable)}, unreachable: second},
		"one redirects":          {servers: []http.HandlerFunc{newest, http.RedirectHandler("https://example.com/", http.StatusFound).ServeHTTP}, unreachable: second},
		"one talks gibberish":    {servers: []http.HandlerFunc{newest, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }}, unreachable: second},
		"one answers with other": {servers: []http.HandlerFunc{newest, apiService("v1beta1.metrics.k8s.io", "new")}, unreachable: second},
		"one down and one lags":  {servers: []http.HandlerFunc{former, newest}, down: "192.0.2.2", lagging: []string{"192.0.2.1:6443"}, unreachable: second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, tc.servers...)
			delete(p.servers, tc.down)
			lagging, unreachable, err := p.client(t).Lagging(t.Context(), serviceName, func(s *apiregistrationv1.APIService) bool {
				return string(s.Spec.CABundle) == "new"
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][]string{tc.lagging, tc.unreachable}, [][]string{lagging, unreachable}); diff != "" {
				t.Errorf("lagging, unreachable (-want +got):\n%s", diff)
			}
		})
	}
}

// Each kube-apiserver proxies from its own network, so all that are there must answer.
func TestAnswers(t *testing.T) {
	const path = "/apis/canary.metricsbackend.io/v1alpha1/canaries/cluster"
	handler := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path || r.Header.Get("Authorization") != "Bearer operator-token" {
				http.Error(w, "unexpected request "+r.URL.String(), http.StatusBadRequest)
				return
			}
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	fine := handler(http.StatusOK, "{}")
	const status = `{"kind":"Status","status":"Failure","reason":"Forbidden","message":"not yours","code":403}`
	hangsUp := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	cases := map[string]struct {
		servers   []http.HandlerFunc
		down      []string
		forbidden bool
		want      string
	}{
		"all answer":                    {servers: []http.HandlerFunc{fine, fine}},
		"one is down":                   {servers: []http.HandlerFunc{fine, fine}, down: []string{"192.0.2.1"}},
		"one does not reach the pods":   {servers: []http.HandlerFunc{fine, handler(http.StatusServiceUnavailable, "dial tcp: i/o timeout")}, want: "dial tcp: i/o timeout"},
		"one forbids it":                {servers: []http.HandlerFunc{handler(http.StatusForbidden, status)}, forbidden: true, want: "not yours"},
		"one hangs up":                  {servers: []http.HandlerFunc{fine, hangsUp}, want: "EOF"},
		"none is there, nor a Service":  {servers: []http.HandlerFunc{fine}, down: []string{"192.0.2.1"}, want: "GET " + path},
		"one answers with a long error": {servers: []http.HandlerFunc{handler(http.StatusBadGateway, strings.Repeat("x", 5000))}, want: "xxx"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, tc.servers...)
			for _, address := range tc.down {
				delete(p.servers, address)
			}
			err := p.client(t).Answers(t.Context(), path)
			if tc.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || len(err.Error()) > 1000 || apierrors.IsForbidden(err) != tc.forbidden {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// A kube-apiserver that cannot be connected to does not count, whatever keeps it; one that
// waits for the pods does.
func TestAnswersWithoutAnAnswer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	fine := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }
	waits := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	cases := map[string]struct {
		second http.HandlerFunc
		hang   dialFunc
		fails  bool
	}{
		"packets to it are dropped": {second: fine, hang: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		"it accepts and says nothing": {second: fine, hang: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, silent.Addr().String())
		}},
		"it waits for the pods": {second: waits, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newControlPlane(t, fine, tc.second)
			if tc.hang != nil {
				p.hangs = map[string]dialFunc{"192.0.2.2": tc.hang}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // enough for the one that answers
			defer cancel()
			if err := p.client(t).Answers(ctx, "/readyz"); (err != nil) != tc.fails {
				t.Errorf("got %v, fails %t", err, tc.fails)
			}
		})
	}
}
