// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/consumers"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/report"
)

func TestConsumersHandler(t *testing.T) {
	o := parsedOptions(t, "--runtime-config=metrics.k8s.io/v1=false")
	enabled, err := o.enabledVersions()
	if err != nil {
		t.Fatal(err)
	}
	recorder := newRecorder(enabled, testingclock.NewFakePassiveClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)))
	for _, version := range resourcemetrics.GroupVersions() {
		recorder.Record(version, "kubectl/v1.37.0", "jane")
	}
	answer := httptest.NewRecorder()
	report.Handlers(nil, recorder)[v1alpha1.ConsumersPath].ServeHTTP(answer, httptest.NewRequest(http.MethodGet, v1alpha1.ConsumersPath, nil))
	var got v1alpha1.ConsumerReport
	if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
		t.Fatalf("decode %q: %v", answer.Body, err)
	}
	// --runtime-config removes v1.
	want := v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{
		{Version: "v1beta1.metrics.k8s.io", UserAgent: "kubectl", User: "jane", LastSeen: "2026-11-01"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// TestHandlerChain: a refused request uses no version, but is counted; any other is recorded with its user and user
// agent, except for discovery.
func TestHandlerChain(t *testing.T) {
	registerMetrics()
	initial, err := config.SettingsFrom(&v1alpha1.MetricsBackendSpec{})
	if err != nil {
		t.Fatal(err)
	}
	recorder := consumers.NewRecorder(clock.RealClock{}, compiledVersions())
	_, handler := installedComponents(t, initial, recorder, func(c *genericapiserver.Config) {
		c.Authentication.Authenticator = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			name, _, known := r.BasicAuth()
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, known, nil
		})
		c.Authorization.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "reader" {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionDeny, "", nil
		})
	})
	counted := func() map[string]float64 {
		// Without any request so far, it returns an error.
		got, _ := testutil.GetCounterValuesFromGatherer(legacyregistry.DefaultGatherer, "metrics_api_requests_total", map[string]string{"resource": "pods", "version": "v1beta1"}, "code")
		return got
	}
	before, want := counted(), map[string]float64{}
	for _, r := range []struct {
		user, path string
		code       int
	}{{"", "/pods", 401}, {"nobody", "/pods", 403}, {"reader", "", 200}, {"reader", "/pods", 503}} {
		request, answer := httptest.NewRequest(http.MethodGet, "/apis/metrics.k8s.io/v1beta1"+r.path, nil), httptest.NewRecorder()
		request.Header.Set("User-Agent", "agent-of-"+r.user+"/1")
		if r.user != "" {
			request.SetBasicAuth(r.user, "")
		}
		handler.ServeHTTP(answer, request)
		if answer.Code != r.code {
			t.Errorf("%s of %q: status %d, want %d: %s", r.path, r.user, answer.Code, r.code, answer.Body)
		}
		if r.path != "" {
			want[strconv.Itoa(r.code)] = before[strconv.Itoa(r.code)] + 1
		}
	}
	if diff := cmp.Diff(want, counted()); diff != "" {
		t.Errorf("requests by code (-want +got):\n%s", diff)
	}
	got := recorder.Report().Consumers
	if len(got) != 1 || got[0].UserAgent != "agent-of-reader" || got[0].User != "reader" || got[0].Version != "v1beta1.metrics.k8s.io" {
		t.Errorf("consumers %+v", got)
	}
}
