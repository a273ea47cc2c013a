// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package prometheus

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	discovered "github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus"
)

// TestSelectorKeys selects by keys that PromQL quotes. Prometheus 3 parses them; the error of an
// older one is the request's, and names the key.
func TestSelectorKeys(t *testing.T) {
	t.Parallel()
	s := start(t, `depth{namespace="a",pod="one",app="web"} 5`, `depth`)
	namespacePod := v1alpha1.RuleResources{Template: "<<.Resource>>"}
	c := rules.NewCatalog(newPods(), clock.RealClock{})
	c.Apply(&v1alpha1.MetricsBackendSpec{
		Sources:         []v1alpha1.SourceSpec{{Name: "real", Prometheus: &v1alpha1.PrometheusSource{URL: "http://x"}}},
		CustomMetrics:   &v1alpha1.CustomMetricsSpec{Rules: []v1alpha1.MetricRule{{SeriesQuery: "depth", Resources: namespacePod}}},
		ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Rules: []v1alpha1.MetricRule{{SeriesQuery: "depth", MetricsQuery: `max(depth{<<.LabelMatchers>>})`}}},
	})
	for _, selection := range c.Selections() {
		c.SetSeries(selection, []discovered.Series{{Name: "depth", Labels: []string{"app", "namespace", "pod"}, Count: 1}})
	}
	quotes := major(t, s.server) >= 3
	for selector, refused := range map[string]string{
		"app=web":                     "",
		"app.kubernetes.io/name=web":  "app.kubernetes.io/name",
		"app.kubernetes.io/name!=web": "app.kubernetes.io/name",
		"app,!my-label":               "my-label",
	} {
		series, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := c.ObjectQuery(query.ObjectRequest{
			Resource: schema.GroupResource{Resource: "pods"}, Namespace: "a", Names: []string{"one"}, Metric: "depth", Series: series,
		})
		if err != nil {
			t.Fatal(err)
		}
		external, err := c.ExternalQuery(query.ExternalRequest{Namespace: "a", Metric: "depth", Series: series})
		if err != nil {
			t.Fatal(err)
		}
		for what, mq := range map[string]query.MetricQuery{"custom": object, "external": external} {
			result, err := s.source.Evaluate(t.Context(), mq.Query, time.Now())
			_, err = mq.Values(result, err)
			switch {
			case refused == "" || quotes:
				if err != nil {
					t.Errorf("%s metric by %s: %v", what, selector, err)
				}
			case !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), strconv.Quote(refused)):
				t.Errorf("%s metric by %s: %v (%s), want a BadRequest that names %q", what, selector, err, apierrors.ReasonForError(err), refused)
			}
		}
	}
}

// major returns the first number of the server's version.
func major(t *testing.T, server *prometheus.Server) int {
	t.Helper()
	answer, err := http.Get(server.URL + "/api/v1/status/buildinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var build struct {
		Data struct {
			Version string `json:"version"`
		} `json:"data"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&build); err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(build.Data.Version, ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		t.Fatalf("version %q: %v", build.Data.Version, err)
	}
	return n
}
