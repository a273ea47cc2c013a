// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
)

// externalMetric is all that a Watcher must know of external.metrics.k8s.io, whose objects have no metadata: nothing
// but this knows the type.
func externalMetric(namespace, metric string) api[externalv1beta1.ExternalMetricValue] {
	return api[externalv1beta1.ExternalMetricValue]{
		group:    externalv1beta1.GroupName,
		versions: []string{"v1beta1"},
		resource: metric,
		path: func(version string, _ bool) string {
			return "/apis/" + externalv1beta1.GroupName + "/" + version + "/namespaces/" + namespace + "/" + metric
		},
		one: func(body []byte) (*externalv1beta1.ExternalMetricValue, error) {
			value := &externalv1beta1.ExternalMetricValue{}
			return value, json.Unmarshal(body, value)
		},
		list: func(body []byte) ([]*externalv1beta1.ExternalMetricValue, error) {
			list := &externalv1beta1.ExternalMetricValueList{}
			err := json.Unmarshal(body, list)
			return pointers(list.Items), err
		},
		key: func(v *externalv1beta1.ExternalMetricValue) string { return v.MetricName + v.MetricLabels["queue"] },
		sample: func(v *externalv1beta1.ExternalMetricValue) (time.Time, string) {
			return v.Timestamp.Time, v.Value.String()
		},
	}
}

func TestOtherAPIs(t *testing.T) {
	value := func(queue, at, value string) string {
		return `{"metricName":"waiting","metricLabels":{"queue":"` + queue + `"},"timestamp":"` + at + `","value":"` + value + `"}`
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		const group = `"apiVersion":"external.metrics.k8s.io/v1beta1"`
		switch {
		case r.URL.Path == "/apis/external.metrics.k8s.io/v1beta1":
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"waiting","verbs":["get","watch"]}]}`)
		case r.URL.Query().Get("watch") == "":
			_, _ = io.WriteString(w, `{"kind":"ExternalMetricValueList",`+group+`,"items":[`+value("red", "2026-01-01T00:00:00Z", "1")+`]}`)
		default:
			// A bookmark has no typed home here: it is an empty list with the resourceVersion.
			_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"kind":"ExternalMetricValueList",`+group+`,"metadata":{"resourceVersion":"5"},"items":[]}}`)
			_, _ = io.WriteString(w, `{"type":"ADDED","object":`+value("blue", "2026-01-01T00:00:01Z", "7")+`}`)
			_, _ = io.WriteString(w, `{"type":"ADDED","object":`+value("red", "2026-01-01T00:00:01Z", "2")+`}`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	watcher, err := newWatcher(&rest.Config{Host: server.URL}, Options{}, externalMetric("shop", "waiting"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // which ends the loop, too
	ended := make(chan error)
	go func() { ended <- watcher.Run(ctx) }()
	for change := range watcher.Changes() {
		if change.Object.Value.Value() == 2 {
			break
		}
	}
	var got []string
	for _, v := range watcher.Snapshot() {
		got = append(got, v.MetricLabels["queue"]+"="+v.Value.String())
	}
	if diff := cmp.Diff([]string{"blue=7", "red=2"}, got); diff != "" {
		t.Error(diff)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
