// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	externalmetricsv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
)

func queued(version string, seconds int) map[string]any {
	return map[string]any{
		"kind": "ExternalMetricValue", "apiVersion": "external.metrics.k8s.io/" + version, "metricName": `mail\|waiting`,
		"metricLabels": map[string]string{"queue": "red", "path": "/a,b"},
		"timestamp":    time.Unix(int64(seconds), 0).UTC().Format(time.RFC3339), "value": fmt.Sprintf("%dm", seconds),
	}
}

func runExternal(t *testing.T, v *values, test func(*Watcher[externalmetricsv1beta1.ExternalMetricValue])) {
	t.Helper()
	newWatcher := func(_ *testing.T, config *rest.Config, options Options) (*Watcher[externalmetricsv1beta1.ExternalMetricValue], error) {
		v.began = time.Now()
		return External(config, ExternalMetric{Namespace: "shop", Metric: "mail/waiting"}, options)
	}
	runOn(t, v, newWatcher, Options{LabelSelector: "queue=red"}, test)
}

func TestExternalMetrics(t *testing.T) {
	v := &values{group: "external.metrics.k8s.io", value: queued, named: map[string][]metav1.APIResource{"v1beta1": named(`mail\|waiting`, "get", "watch")}}
	stream := v.stream(10 * time.Minute)
	var paths []string
	v.plain = func(rw http.ResponseWriter, r *http.Request) {
		v.set(func() { paths = append(paths, r.URL.Path+"?"+r.URL.RawQuery) })
		stream(rw, r)
	}
	runExternal(t, v, func(w *Watcher[externalmetricsv1beta1.ExternalMetricValue]) {
		v.at(31 * time.Second)
		if got := w.List("shop"); len(got) != 1 || got[0].Value.MilliValue() != 30 || got[0].MetricLabels["path"] != "/a,b" {
			t.Errorf("held: %+v", got)
		}
		if got := w.Status(); got.Mode != Watching || got.Version != "v1beta1" {
			t.Errorf("status %+v", got)
		}
		want := []string{`/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/mail\|waiting?allowWatchBookmarks=true&labelSelector=queue%3Dred&watch=true`}
		if diff := cmp.Diff(want, paths); diff != "" {
			t.Error(diff)
		}
	})
}

// Two values of the same second are two data points, although there is no resourceVersion to tell them apart.
func TestValuesOfOneSecond(t *testing.T) {
	v := &values{group: "external.metrics.k8s.io", value: queued, named: map[string][]metav1.APIResource{"v1beta1": named(`mail\|waiting`, "watch")}}
	v.plain = func(rw http.ResponseWriter, r *http.Request) {
		other := queued("v1beta1", 0)
		other["value"] = "7"
		send(rw, "ADDED", other)
		<-r.Context().Done()
	}
	runExternal(t, v, func(w *Watcher[externalmetricsv1beta1.ExternalMetricValue]) {
		if got := w.Snapshot(); len(got) != 1 || got[0].Value.Value() != 7 {
			t.Errorf("held: %+v", got)
		}
	})
}

// prometheus-adapter answers a watch of external metrics with 405.
func TestExternalMetricsOfOthers(t *testing.T) {
	v := &values{group: "external.metrics.k8s.io", value: queued, named: map[string][]metav1.APIResource{"v1beta1": nil}}
	v.plain = refuse(http.StatusMethodNotAllowed)
	runExternal(t, v, func(w *Watcher[externalmetricsv1beta1.ExternalMetricValue]) {
		v.at(46 * time.Second)
		if got := w.Status(); got.Mode != Polling || got.Err != nil {
			t.Errorf("status %+v", got)
		}
		want := "0s discover v1beta1\n0s list v1beta1\n0s ?watch v1beta1\n15s list v1beta1\n30s list v1beta1\n45s list v1beta1"
		if diff := cmp.Diff(want, v.requests()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWrongExternalMetrics(t *testing.T) {
	for name, test := range map[string]struct {
		metric  ExternalMetric
		options Options
		want    string
	}{
		"no namespace":               {metric: ExternalMetric{Metric: "a"}, want: "Namespace is empty"},
		"a namespace that is a path": {metric: ExternalMetric{Namespace: "../x", Metric: "a"}, want: `namespace "../x"`},
		"no metric":                  {metric: ExternalMetric{Namespace: "a"}, want: "name of the metric is empty"},
		"a metric with a percent":    {metric: ExternalMetric{Namespace: "a", Metric: "50%"}, want: `metric "50%"`},
		"a wrong selector":           {metric: ExternalMetric{Namespace: "a", Metric: "b"}, options: Options{LabelSelector: "a=b=c"}, want: "LabelSelector"},
	} {
		if _, err := External(&rest.Config{}, test.metric, test.options); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %s", name, err, test.want)
		}
	}
}
