// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/apis/external_metrics/install"
	externalmetricsv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
)

// ExternalMetric names a metric that describes no object, of external.metrics.k8s.io.
type ExternalMetric struct {
	// Namespace in which it is asked for.
	Namespace string
	// Metric is the metric's name. Slashes become `\|`, the API's own escape.
	Metric string
}

// External returns a Watcher of the values of a metric, one for each set of labels; Options.LabelSelector selects among
// them. It does nothing before Run. Take MaxAge at least three times the interval at which the metric is evaluated.
func External(config *rest.Config, metric ExternalMetric, options Options) (*Watcher[externalmetricsv1beta1.ExternalMetricValue], error) {
	name := strings.ReplaceAll(metric.Metric, "/", `\|`)
	if err := checkMetric(name, options); err != nil {
		return nil, err
	}
	if metric.Namespace == "" {
		return nil, fmt.Errorf("in which namespace is the metric %q asked for? Namespace is empty", metric.Metric)
	}
	if wrong := content.IsPathSegmentName(metric.Namespace); len(wrong) > 0 {
		return nil, fmt.Errorf("namespace %q: %s", metric.Namespace, strings.Join(wrong, ", "))
	}
	convert := newConverter(externalmetricsv1beta1.SchemeGroupVersion, install.Install)
	return newWatcher(config, options, api[externalmetricsv1beta1.ExternalMetricValue]{
		group:    externalmetricsv1beta1.GroupName,
		versions: []string{"v1beta1"},
		resource: name,
		unnamed:  true,
		path: func(version string, _ bool) string {
			return "/apis/" + externalmetricsv1beta1.GroupName + "/" + version + "/namespaces/" + metric.Namespace + "/" + name
		},
		query: selectors(options),
		one: func(body []byte) (*externalmetricsv1beta1.ExternalMetricValue, error) {
			return decode[*externalmetricsv1beta1.ExternalMetricValue](convert, body)
		},
		list: func(body []byte) ([]*externalmetricsv1beta1.ExternalMetricValue, error) {
			list, err := decode[*externalmetricsv1beta1.ExternalMetricValueList](convert, body)
			if err != nil {
				return nil, err
			}
			return pointers(list.Items), nil
		},
		key: func(v *externalmetricsv1beta1.ExternalMetricValue) string {
			// Of a map JSON is the same each time, and of two maps never. Marshalling strings cannot fail.
			set, _ := json.Marshal(v.MetricLabels)
			return metric.Namespace + "/" + string(set)
		},
		sample: func(v *externalmetricsv1beta1.ExternalMetricValue) (time.Time, string) {
			return v.Timestamp.Time, v.Value.String()
		},
	})
}
