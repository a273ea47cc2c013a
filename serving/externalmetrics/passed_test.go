// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/metrics/pkg/apis/external_metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics/policy"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/routes"
)

// ownMetrics are metrics before which there are routes.
type ownMetrics struct{ falling }

func (ownMetrics) ObjectMetrics(int) ([]query.ObjectMetric, int) { return nil, 0 }

func (ownMetrics) ObjectQuery(query.ObjectRequest) (query.MetricQuery, query.ObjectMetric, error) {
	return query.MetricQuery{}, query.ObjectMetric{}, nil
}

func (ownMetrics) DefinesObjectMetric(query.ObjectRequest) bool { return false }

func (o ownMetrics) DefinesExternalMetric(_, metric string) bool {
	_, ok := o.fakeMetrics[metric]
	return ok
}

// routed has the source keda answer all metrics but those of the world, with values of the metric depth.
func routed(w *world) {
	w.served = func(f falling) query.ExternalMetrics {
		r := routes.NewRouter(ownMetrics{f}, func(string) []metav1.APIResource { return nil })
		r.Apply(&v1alpha1.MetricsBackendSpec{
			Sources:         []v1alpha1.SourceSpec{{Name: "keda", MetricsAPI: &v1alpha1.MetricsAPISource{Group: v1alpha1.ExternalMetricsGroup}}},
			ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Routes: []v1alpha1.MetricRoute{{Source: "keda"}}},
		})
		return r
	}
	var samples []query.Sample
	for queue, value := range map[string]string{"b": "12345678901234567", "a": "1n"} {
		item := &external_metrics.ExternalMetricValue{MetricName: "Depth", MetricLabels: labels.Set{"queue": queue}, Timestamp: metav1.NewTime(t0), Value: apiresource.MustParse(value)}
		if queue == "a" {
			item.WindowSeconds = new(int64(7))
		}
		samples = append(samples, query.Sample{Labels: item.MetricLabels, Value: item.Value.AsApproximateFloat64(), Time: t0, Passed: &query.Passed{Object: item, Quantity: item.Value}})
	}
	if samples[0].Labels["queue"] == "a" {
		samples[0], samples[1] = samples[1], samples[0]
	}
	w.source.answers["/namespaces/shop/depth?labelSelector=queue%2C%21x"] = samples
	w.source.answers["/namespaces/shop/depth?labelSelector=queue%3Da"] = samples[1:]
	w.source.warnings = []string{"soon deprecated"}
}

const (
	passedA = `"metricName":"Depth","metricLabels":{"queue":"a"},"timestamp":"2026-08-30T12:00:00Z","window":7,"value":"1n"}`
	passedB = `"metricName":"Depth","metricLabels":{"queue":"b"},"timestamp":"2026-08-30T12:00:00Z","value":"12345678901234567"}`
)

// TestPassed: values of another implementation are listed unchanged, in its order, with its warnings.
func TestPassed(t *testing.T) {
	w := newWorld(t, routed)
	for where, want := range map[string]string{
		path("depth", "?labelSelector=queue,!x"): "{" + passedB + ",{" + passedA,
		path("depth", ""):                        "",
	} {
		response := w.do(http.MethodGet, where) //nolint:bodyclose // do has it closed at the end.
		if diff := cmp.Diff([]string{"soon deprecated"}, warnings(t, response)); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
		if code, body := w.read(response); code != http.StatusOK || !strings.Contains(body, `"items":[`+want+"]") {
			t.Errorf("%s: %d %s, want %s", where, code, body, want)
		}
	}
	if got := values(w.list(path("queue_length", ""))); len(got) != 3 {
		t.Errorf("own: %q", got)
	}
	if code, body := w.get(path("depth", "?labelSelector=queue,!x&explain=true")); code != http.StatusOK || !strings.Contains(body, `"origin": "spec.externalMetrics.routes[0]"`) {
		t.Errorf("explained: %d %s", code, body)
	}
}

// TestPassedWatch: a watch has the values unchanged, also one whose thousandths do not fit 64 bits, and all with
// the same labels.
func TestPassedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, routed)
		expression := "/namespaces/shop/depth?labelSelector=queue%2C%21x"
		w.source.answers[expression] = append(w.source.answers[expression], w.source.answers[expression]...)
		lines := w.watch(path("depth", "?watch=true&labelSelector=queue,!x&timeoutSeconds=50"))
		for _, want := range []string{passedA, passedA, passedB, passedB} {
			line, err := lines.ReadString('\n')
			if err != nil || !strings.HasSuffix(strings.TrimSpace(line), want+"}") {
				t.Errorf("%v: %s, want %s", err, line, want)
			}
		}
	})
}

// TestPassedErrors: clients get errors of another implementation unchanged, those of policies before, and others as 503.
func TestPassedErrors(t *testing.T) {
	w := newWorld(t, routed)
	w.apply(policy.Compile([]v1alpha1.ExternalMetricsPolicy{denying("no-orders", "orders", "jane")}))
	w.source.failure = &query.Failure{Source: "keda", Reason: query.ReasonRejected, Message: "HTTP 404: gone", Status: &metav1.Status{
		Status: metav1.StatusFailure, Code: 422, Reason: "ScaledObjectGone", Message: "no ScaledObject <x>",
	}}
	for name, test := range map[string]struct {
		path, user string
		want       metav1.Status
	}{
		"of the implementation": {path("depth", ""), "jane", metav1.Status{Code: 422, Reason: "ScaledObjectGone", Message: "no ScaledObject <x>"}},
		"denied":                {path("orders", ""), "jane", metav1.Status{Code: 403, Reason: "Forbidden", Message: `orders.external.metrics.k8s.io is forbidden: ExternalMetricsPolicy "no-orders" (spec.rules[0]) denies the metric`}},
	} {
		for _, parameters := range []string{"", "?watch=true"} {
			_, body := w.get(test.path+parameters, "X-Test-User", test.user)
			var got metav1.Status
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatalf("%s%s: %s", name, parameters, body)
			}
			if got := (metav1.Status{Code: got.Code, Reason: got.Reason, Message: got.Message}); !strings.HasPrefix(got.Message, test.want.Message) || got.Code != test.want.Code || got.Reason != test.want.Reason {
				t.Errorf("%s%s: %s", name, parameters, body)
			}
		}
	}
}
