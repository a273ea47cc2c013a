// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

func TestSourcesHandler(t *testing.T) {
	report := v1alpha1.KubeletReport{
		Nodes: 3, Healthy: 1, Pending: 1, NewestSample: metav1.NewTime(time.Unix(1700000000, 0)),
		Failures: []v1alpha1.KubeletFailure{{Reason: v1alpha1.ScrapeTimeout, Count: 1, Nodes: []string{"a"}, Message: "no answer"}},
	}
	handler := Handlers(&Reporter{
		Catalog:            rules.NewCatalog(restmapping.NewDirectory(nil, clock.RealClock{}), clock.RealClock{}),
		Clock:              clock.RealClock{},
		ObservedGeneration: func() int64 { return 7 },
		Kubelets:           func() v1alpha1.KubeletReport { return report },
		Sources:            func() []v1alpha1.SourceHealth { return nil },
		ResourceRules:      func() ([]v1alpha1.RuleHealth, int, int) { return nil, 3, 0 },
		Routes:             func() ([]v1alpha1.RuleHealth, int, int) { return nil, 0, 0 },
	}, nil)[v1alpha1.SourcesPath]
	tests := map[string]int{
		http.MethodGet:    http.StatusOK,
		http.MethodHead:   http.StatusOK,
		http.MethodPost:   http.StatusMethodNotAllowed,
		http.MethodDelete: http.StatusMethodNotAllowed,
	}
	for method, want := range tests {
		t.Run(method, func(t *testing.T) {
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequest(method, v1alpha1.SourcesPath, nil))
			if answer.Code != want {
				t.Fatalf("status %d, want %d", answer.Code, want)
			}
			if method != http.MethodGet {
				return
			}
			var got v1alpha1.SourceReport
			if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
				t.Fatalf("decode %q: %v", answer.Body, err)
			}
			if diff := cmp.Diff(v1alpha1.SourceReport{ObservedGeneration: 7, Kubelets: report, RuleCount: 3}, got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if got := answer.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
		})
	}
}

// Settings that are applied while a report is made are not said to be in it.
func TestGenerationOfAReport(t *testing.T) {
	generation := int64(1)
	r := &Reporter{
		Catalog:            rules.NewCatalog(restmapping.NewDirectory(nil, clock.RealClock{}), clock.RealClock{}),
		Clock:              clock.RealClock{},
		ObservedGeneration: func() int64 { return generation },
		Kubelets:           func() v1alpha1.KubeletReport { return v1alpha1.KubeletReport{} },
		Sources:            func() []v1alpha1.SourceHealth { generation++; return nil },
		ResourceRules:      func() ([]v1alpha1.RuleHealth, int, int) { return nil, 0, 0 },
		Routes:             func() ([]v1alpha1.RuleHealth, int, int) { return nil, 0, 0 },
	}
	if got := r.SourceReport().ObservedGeneration; got != 1 {
		t.Errorf("generation %d, want that of the start", got)
	}
}
