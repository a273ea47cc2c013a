// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	custommetricsv1beta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
)

var pods = schema.GroupResource{Resource: "pods"}

// hits returns a value of a metric: v1beta1 has the metric's name in another field.
func hits(version string, seconds int) map[string]any {
	value := map[string]any{
		"kind": "MetricValue", "apiVersion": "custom.metrics.k8s.io/" + version,
		"describedObject": map[string]any{"kind": "Pod", "namespace": "shop", "name": "cart-1", "apiVersion": "v1"},
		"timestamp":       time.Unix(int64(seconds), 0).UTC().Format(time.RFC3339), "value": fmt.Sprint(seconds),
	}
	if version == "v1beta1" {
		value["metricName"] = "hits"
	} else {
		value["metric"] = map[string]any{"name": "hits"}
	}
	return value
}

func customMetrics(resources map[string]string) *values {
	v := &values{group: "custom.metrics.k8s.io", value: hits}
	v.named = map[string][]metav1.APIResource{}
	for version, verbs := range resources {
		v.named[version] = named("pods/hits", strings.Fields(verbs)...)
	}
	return v
}

func runCustom(t *testing.T, v *values, test func(*Watcher[custommetricsv1beta2.MetricValue])) {
	t.Helper()
	newWatcher := func(_ *testing.T, config *rest.Config, options Options) (*Watcher[custommetricsv1beta2.MetricValue], error) {
		v.began = time.Now()
		return Custom(config, CustomMetric{Resource: pods, Namespace: "shop", Metric: "hits"}, options)
	}
	runOn(t, v, newWatcher, Options{}, test)
}

// heldValues returns the snapshot as namespace/name metric=value.
func heldValues(w *Watcher[custommetricsv1beta2.MetricValue]) string {
	var out []string
	for _, v := range w.Snapshot() {
		out = append(out, fmt.Sprintf("%s/%s %s=%v", v.DescribedObject.Namespace, v.DescribedObject.Name, v.Metric.Name, &v.Value))
	}
	return cmp.Or(strings.Join(out, " "), "nothing")
}

func wantHeldValues(t *testing.T, w *Watcher[custommetricsv1beta2.MetricValue], want string) {
	t.Helper()
	if got := heldValues(w); got != want {
		t.Errorf("held: %s, want %s", got, want)
	}
}

func TestCustomMetricsByThePrefix(t *testing.T) {
	v := customMetrics(map[string]string{"v1beta2": "get watch", "v1beta1": "get watch"})
	v.prefixed = v.stream(time.Hour)
	runCustom(t, v, func(w *Watcher[custommetricsv1beta2.MetricValue]) {
		v.at(31 * time.Second)
		wantHeldValues(t, w, "shop/cart-1 hits=30")
		if got := w.Status(); got.Mode != Watching || got.Version != "v1beta2" {
			t.Errorf("status %+v", got)
		}
		want := "0s discover v1beta2\n0s list v1beta2\n0s watch/ v1beta2"
		if diff := gocmp.Diff(want, v.requests()); diff != "" {
			t.Error(diff)
		}
	})
}

// If the prefix is not served or not allowed, the Watcher uses `?watch=true`, which ends within a minute, and watches
// again.
func TestCustomMetricsWithoutThePrefix(t *testing.T) {
	for name, refusal := range map[string]http.HandlerFunc{"not served": http.NotFound, "forbidden": refuse(http.StatusForbidden)} {
		t.Run(name, func(t *testing.T) {
			v := customMetrics(map[string]string{"v1beta2": "get watch"})
			v.prefixed, v.plain = refusal, v.stream(50*time.Second)
			runCustom(t, v, func(w *Watcher[custommetricsv1beta2.MetricValue]) {
				v.at(2 * time.Minute)
				wantHeldValues(t, w, "shop/cart-1 hits=120")
				if got := w.Status(); got.Mode != Watching || got.Err != nil {
					t.Errorf("status %+v", got)
				}
				want := []string{"0s discover v1beta2", "0s list v1beta2", "0s watch/ v1beta2", "0s ?watch v1beta2",
					"51s ?watch v1beta2", "1m42s ?watch v1beta2"}
				if diff := gocmp.Diff(strings.Join(want, "\n"), v.requests()); diff != "" {
					t.Error(diff)
				}
				// After discovery, the server may be another one.
				v.set(func() { v.prefixed, v.log = v.stream(time.Hour), nil })
				v.at(6 * time.Minute)
				if got := v.requests(); !strings.HasSuffix(got, "5m6s discover v1beta2\n5m6s watch/ v1beta2") {
					t.Errorf("requests:\n%s", got)
				}
			})
		})
	}
}

// prometheus-adapter and similar servers have one version and no watch: they send a plain list.
func TestCustomMetricsOfOthers(t *testing.T) {
	for name, test := range map[string]struct {
		named map[string][]metav1.APIResource
		want  string // why it polls
	}{
		"discovery says so":        {map[string][]metav1.APIResource{"v1beta1": named("pods/hits", "get")}, "names no watch for pods/hits in custom.metrics.k8s.io/v1beta1"},
		"of another metric":        {map[string][]metav1.APIResource{"v1beta1": named("pods/errors", "get")}, "names no watch for pods/hits"},
		"discovery has no metrics": {map[string][]metav1.APIResource{"v1beta1": nil}, "answered the watch with a plain list"},
	} {
		t.Run(name, func(t *testing.T) {
			v := customMetrics(nil)
			v.named, v.prefixed, v.plain = test.named, http.NotFound, v.list
			runCustom(t, v, func(w *Watcher[custommetricsv1beta2.MetricValue]) {
				v.at(61 * time.Second)
				wantHeldValues(t, w, "shop/cart-1 hits=60")
				got := w.Status()
				if got.Mode != Polling || got.Version != "v1beta1" || got.PollingReason == nil || !strings.Contains(got.PollingReason.Error(), test.want) {
					t.Errorf("status %+v", got)
				}
			})
		})
	}
}

// A metric without values is an error in the status.
func TestCustomMetricWithoutValues(t *testing.T) {
	v := customMetrics(map[string]string{"v1beta2": "get watch"})
	v.value = func(string, int) map[string]any { return nil }
	runCustom(t, v, func(w *Watcher[custommetricsv1beta2.MetricValue]) {
		if got := w.Status(); got.Mode != Starting || got.Err == nil || !strings.Contains(got.Err.Error(), "an object has no name") {
			t.Errorf("status %+v", got)
		}
	})
}

func TestCustomMetricPaths(t *testing.T) {
	ingresses := schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}
	for want, test := range map[string]struct {
		metric CustomMetric
		watch  bool
	}{
		"/namespaces/shop/pods/*/hits":                              {metric: CustomMetric{Resource: pods, Namespace: "shop", Metric: "hits"}},
		"/watch/namespaces/shop/pods/*/hits":                        {metric: CustomMetric{Resource: pods, Namespace: "shop", Metric: "hits"}, watch: true},
		"/namespaces/shop/ingresses.networking.k8s.io/main/latency": {metric: CustomMetric{Resource: ingresses, Namespace: "shop", Name: "main", Metric: "latency"}},
		"/nodes/*/load": {metric: CustomMetric{Resource: schema.GroupResource{Resource: "nodes"}, Metric: "load"}},
		"/watch/namespaces/shop/metrics/depth": {
			metric: CustomMetric{Resource: schema.GroupResource{Resource: "namespaces"}, Name: "shop", Metric: "depth"}, watch: true},
		"/namespaces/*/metrics/depth": {metric: CustomMetric{Resource: schema.GroupResource{Resource: "namespaces"}, Metric: "depth"}},
	} {
		watcher, err := Custom(&rest.Config{Host: "metrics.example"}, test.metric, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := watcher.api.path("v1beta2", test.watch); got != "/apis/custom.metrics.k8s.io/v1beta2"+want {
			t.Errorf("path %s, want %s", got, want)
		}
	}
}

func TestWrongCustomMetrics(t *testing.T) {
	good := CustomMetric{Resource: pods, Namespace: "shop", Metric: "hits"}
	for name, test := range map[string]struct {
		change  func(*CustomMetric)
		options Options
		want    string
	}{
		"no resource":                 {change: func(m *CustomMetric) { m.Resource = schema.GroupResource{} }, want: "Resource is empty"},
		"no metric":                   {change: func(m *CustomMetric) { m.Metric = "" }, want: "name of the metric is empty"},
		"a metric with a slash":       {change: func(m *CustomMetric) { m.Metric = "a/b" }, want: `metric "a/b"`},
		"a metric with a question":    {change: func(m *CustomMetric) { m.Metric = "a?b" }, want: `metric "a?b"`},
		"a metric that leads upwards": {change: func(m *CustomMetric) { m.Metric = ".." }, want: `metric ".."`},
		"a namespace that is a path":  {change: func(m *CustomMetric) { m.Namespace = "a/b" }, want: `namespace "a/b"`},
		"a namespace of namespaces":   {change: func(m *CustomMetric) { m.Resource.Resource = "namespaces" }, want: "a namespace has no namespace"},
		"a selector that does not parse": {change: func(m *CustomMetric) { m.MetricSelector = "a=b=c" },
			want: `metric selector "a=b=c"`},
		"a name and a selector": {change: func(m *CustomMetric) { m.Name = "x" }, options: Options{LabelSelector: "a=b"}, want: "take it out"},
		"a field selector":      {change: func(*CustomMetric) {}, options: Options{FieldSelector: "metadata.name=a"}, want: "FieldSelector"},
	} {
		metric := good
		test.change(&metric)
		if _, err := Custom(&rest.Config{}, metric, test.options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %s", name, err, test.want)
		}
	}
}
