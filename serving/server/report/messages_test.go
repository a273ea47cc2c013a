// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// TestLongQueries: a report does not grow with the length of queries, which error messages
// quote.
func TestLongQueries(t *testing.T) {
	filler := strings.Repeat("<", v1alpha1.MaxDeclaredSize-100)
	tests := map[string]struct{ query, reason string }{
		"another namespace":    {`sum(m{namespace="other` + filler + `"})`, rules.ReasonInvalidQuery},
		"a regular expression": {`sum(m{namespace=~"other` + filler + `"})`, rules.ReasonInvalidQuery},
		"no PromQL":            {`sum(m{a="` + filler + `"}) extra`, rules.ReasonInvalidQuery},
		"a name that is long":  {`sum(` + strings.Repeat("m", len(filler)) + `[5m])`, rules.ReasonInvalidQuery},
	}
	const metrics = 175
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := &Reporter{Catalog: rules.NewCatalog(restmapping.NewDirectory(nil, clock.RealClock{}), clock.RealClock{})}
			r.Catalog.Apply(&v1alpha1.MetricsBackendSpec{Sources: []v1alpha1.SourceSpec{
				{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus"}},
			}})
			var declared []*v1alpha1.ExternalMetric
			for i := range metrics {
				m := declaredOf("shop", fmt.Sprintf("m%03d", i))
				m.Spec.Query = tc.query
				declared = append(declared, m)
			}
			r.Catalog.Declare(nil, declared)
			answer := httptest.NewRecorder()
			Handlers(r, nil)[v1alpha1.DeclaredPath].ServeHTTP(answer, httptest.NewRequest(http.MethodGet, v1alpha1.DeclaredPath, nil))
			if size, limit := answer.Body.Len(), metrics*8<<10; size > limit {
				t.Errorf("%d metrics take %d bytes, want at most %d", metrics, size, limit)
			}
			var report v1alpha1.DeclaredReport
			if err := json.Unmarshal(answer.Body.Bytes(), &report); err != nil || len(report.Metrics) != metrics {
				t.Fatalf("%d metrics, %v", len(report.Metrics), err)
			}
			if first := report.Metrics[0]; first.Reason != tc.reason || len(first.Message) < 50 {
				t.Errorf("%s: %s", first.Reason, first.Message)
			}
		})
	}
}
