// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package consumers

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// newRequest is a request as it is behind authentication.
func newRequest(tb testing.TB, path, userAgent, userName string) *http.Request {
	tb.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("User-Agent", userAgent)
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("apis", "api"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := resolver.NewRequestInfo(r)
	if err != nil {
		tb.Fatal(err)
	}
	ctx := request.WithRequestInfo(r.Context(), info)
	if userName != "" {
		ctx = request.WithUser(ctx, &user.DefaultInfo{Name: userName})
	}
	return r.WithContext(ctx)
}

func TestWithRecording(t *testing.T) {
	kubectl := []v1alpha1.ConsumerStatus{consumer("v1", "kubectl", "jane", "2026-11-01")}
	tests := map[string]struct {
		path, user string
		want       []v1alpha1.ConsumerStatus
	}{
		"list":                   {"/apis/metrics.k8s.io/v1/nodes", "jane", kubectl},
		"get":                    {"/apis/metrics.k8s.io/v1/namespaces/default/pods/a", "jane", kubectl},
		"watch":                  {"/apis/metrics.k8s.io/v1/pods?watch=true", "jane", kubectl},
		"discovery of a version": {"/apis/metrics.k8s.io/v1", "system:kube-aggregator", nil},
		"discovery of the group": {"/apis/metrics.k8s.io", "jane", nil},
		"OpenAPI":                {"/openapi/v2", "system:aggregator", nil},
		"health":                 {"/readyz", "system:anonymous", nil},
		"the report itself":      {v1alpha1.ConsumersPath, "prober", nil},
		"another group":          {"/apis/apps/v1/deployments", "jane", nil},
		"nobody was recognised":  {"/apis/metrics.k8s.io/v1/nodes", "", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := NewRecorder(testingclock.NewFakePassiveClock(noon), versions)
			served := false
			handler := WithRecording(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }), r)
			handler.ServeHTTP(httptest.NewRecorder(), newRequest(t, tc.path, "kubectl/v1.37.0 (linux/amd64)", tc.user))
			if !served {
				t.Error("the request was not served")
			}
			if diff := cmp.Diff(append([]v1alpha1.ConsumerStatus{}, tc.want...), r.Report().Consumers); diff != "" {
				t.Errorf("consumers (-want +got):\n%s", diff)
			}
		})
	}
}

// A request without the context that the server's chain gives it is served.
func TestWithRecordingOutsideTheChain(t *testing.T) {
	r := NewRecorder(testingclock.NewFakePassiveClock(noon), versions)
	answer := httptest.NewRecorder()
	WithRecording(http.NotFoundHandler(), r).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/apis/metrics.k8s.io/v1/nodes", nil))
	if answer.Code != http.StatusNotFound || len(r.Report().Consumers) != 0 {
		t.Errorf("status %d, consumers %v", answer.Code, r.Report().Consumers)
	}
}
