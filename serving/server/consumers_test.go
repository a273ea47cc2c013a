// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
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
