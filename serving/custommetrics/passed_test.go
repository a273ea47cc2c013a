// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/metrics/pkg/apis/custom_metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/routes"
)

// ownMetrics are those of a world, which defines hits.
type ownMetrics struct{ *world }

func (ownMetrics) ExternalMetrics(int) ([]string, int) { return nil, 0 }

func (ownMetrics) ExternalName(_, requested string) string { return requested }

func (ownMetrics) ExternalQuery(query.ExternalRequest) (query.MetricQuery, error) {
	return query.MetricQuery{}, nil
}

func (ownMetrics) DefinesObjectMetric(r query.ObjectRequest) bool { return r.Metric == "hits" }

func (ownMetrics) DefinesExternalMetric(string, string) bool { return false }

// routed has another implementation answer the metrics that a world does not define, with two pods.
func routed(w *world) func(*serverConfig, *Options) {
	var samples []query.Sample
	for _, pod := range []string{"web-2", "unknown"} {
		item := &custom_metrics.MetricValue{
			DescribedObject: custom_metrics.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "shop", Name: pod},
			Metric:          custom_metrics.MetricIdentifier{Name: "busy", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
			Timestamp:       metav1.NewTime(t0), WindowSeconds: new(int64(7)), Value: apiresource.MustParse("1n"),
		}
		samples = append(samples, query.Sample{Labels: map[string]string{"object": pod}, Value: 1e-9, Time: t0, Passed: &query.Passed{Object: item, Quantity: item.Value}})
	}
	w.samples["/namespaces/shop/pods/%2A/busy?labelSelector=app%3Dweb&metricLabelSelector=code+in+%28200%29"] = samples
	w.samples["/namespaces/shop/pods/web-2/busy"] = samples[:1]
	w.warnings = []string{"soon deprecated"}
	return func(_ *serverConfig, o *Options) {
		r := routes.NewRouter(ownMetrics{w}, func(string) []metav1.APIResource { return nil })
		r.Apply(&v1alpha1.MetricsBackendSpec{
			Sources:       []v1alpha1.SourceSpec{{Name: "adapter", MetricsAPI: &v1alpha1.MetricsAPISource{Group: v1alpha1.CustomMetricsGroup}}},
			CustomMetrics: &v1alpha1.CustomMetricsSpec{Routes: []v1alpha1.MetricRoute{{Source: "adapter"}}},
		})
		o.Metrics = r
	}
}

// passed is what the implementation answers for a pod, in v1beta2.
func passed(pod string) string {
	return `"describedObject":{"kind":"Pod","namespace":"shop","name":"` + pod + `","apiVersion":"v1"},"metric":{"name":"busy","selector":{"matchLabels":{"a":"b"}}},"timestamp":"2026-08-30T12:00:00Z","windowSeconds":7,"value":"1n"}`
}

const (
	busyPods = "/namespaces/shop/pods/*/busy?labelSelector=app%3Dweb&metricLabelSelector=code+in+(200)"
	busyPod  = "/namespaces/shop/pods/web-2/busy"
)

// TestPassed: values of another implementation are listed unchanged, in its order, and it selects the objects.
func TestPassed(t *testing.T) {
	w := newWorld()
	server := serve(t, w, routed(w))
	for path, want := range map[string]string{
		busyPods:                        "{" + passed("web-2") + ",{" + passed("unknown"),
		busyPod:                         "{" + passed("web-2"),
		"/namespaces/*/metrics/busy":    "",
		"/nodes/*/busy?labelSelector=a": "",
	} {
		got := server.do(t, http.MethodGet, root("v1beta2")+path, "")
		if got.code != http.StatusOK || !strings.Contains(string(got.body), `"items":[`+want+"]") || !strings.Contains(got.header.Get("Warning"), "soon deprecated") {
			t.Errorf("%s: %d %s %s, want %s", path, got.code, got.header, got.body, want)
		}
	}
	if w.listed > 0 {
		t.Errorf("objects were looked up %d times", w.listed)
	}
	for path, want := range map[string]string{
		"/namespaces/shop/pods/web-1/hits": `"value":"500m"`,
		busyPods + "&explain=true":         `"origin": "spec.customMetrics.routes[0]"`,
		busyPods + "&explain=1":            `"valueCount": 2`,
		"/namespaces/shop/pods/x/none":     `"items":[]`,
	} {
		if got := server.do(t, http.MethodGet, root("v1beta2")+path, ""); !strings.Contains(string(got.body), want) {
			t.Errorf("%s: %d %s, want %s", path, got.code, got.body, want)
		}
	}
}

// TestPassedWatch: a watch has the values unchanged, of whatever objects they are.
func TestPassedWatch(t *testing.T) {
	w := newWorld()
	bubble(t, w, func(t *testing.T, s *served) {
		for path, want := range map[string][]string{busyPods: {passed("unknown"), passed("web-2")}, busyPod: {passed("web-2")}} {
			watch := s.watch(t, root("v1beta2")+strings.ReplaceAll(path, " ", "+")+map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")]+"watch=true")
			for _, item := range want {
				if watch.lines.Scan(); !strings.HasSuffix(watch.lines.Text(), item+"}") {
					t.Errorf("%s: %s, want %s", path, watch.lines.Text(), item)
				}
			}
		}
		if w.listed > 0 {
			t.Errorf("objects were looked up %d times", w.listed)
		}
	}, routed(w))
}

// TestPassedErrors: clients get errors of another implementation unchanged.
func TestPassedErrors(t *testing.T) {
	w := newWorld()
	w.fail(&query.Failure{Source: "adapter", Reason: query.ReasonServerError, Message: "HTTP 500: gone", Status: &metav1.Status{
		Status: metav1.StatusFailure, Code: 500, Reason: "Broken", Message: "no <x>",
	}})
	server := serve(t, w, routed(w))
	for _, path := range []string{busyPod, busyPods, busyPod + "?watch=true"} {
		got := server.do(t, http.MethodGet, root("v1beta2")+path, "")
		var status metav1.Status
		if err := json.Unmarshal(got.body, &status); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(metav1.Status{TypeMeta: status.TypeMeta, Status: metav1.StatusFailure, Code: 500, Reason: "Broken", Message: "no <x>"}, status); diff != "" || got.code != 500 {
			t.Errorf("%s: %d (-want +got):\n%s", path, got.code, diff)
		}
	}
}
