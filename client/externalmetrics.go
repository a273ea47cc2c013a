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

// ExternalMetric is a metric that describes no object, in external.metrics.k8s.io.
type ExternalMetric struct {
	// Namespace of the request.
	Namespace string
	// Metric is the metric's name. Slashes are sent as `\|`, the API's own escape.
	Metric string
}

// External returns a Watcher of the values of a metric, one for each set of labels; Options.LabelSelector selects among
// them. It sends no request before Sync or Run. Set MaxAge to at least three times the interval at which the metric is
// evaluated.
func External(config *rest.Config, metric ExternalMetric, options Options) (*Watcher[externalmetricsv1beta1.ExternalMetricValue], error) {
	name := strings.ReplaceAll(metric.Metric, "/", `\|`)
	if err := validateMetricName(name, options); err != nil {
		return nil, err
	}
	if metric.Namespace == "" {
		return nil, fmt.Errorf("in which namespace is the metric %q asked for? Namespace is empty", metric.Metric)
	}
	if wrong := content.IsPathSegmentName(metric.Namespace); len(wrong) > 0 {
		return nil, fmt.Errorf("namespace %q: %s", metric.Namespace, strings.Join(wrong, ", "))
	}
	items := func(l *externalmetricsv1beta1.ExternalMetricValueList) []externalmetricsv1beta1.ExternalMetricValue {
		return l.Items
	}
	values := newAPI(externalmetricsv1beta1.SchemeGroupVersion, install.Install, options, items)
	values.versions, values.resource, values.maybeUndiscovered = []string{"v1beta1"}, name, true
	values.path = func(version string, _ bool) string {
		return "/apis/" + externalmetricsv1beta1.GroupName + "/" + version + "/namespaces/" + metric.Namespace + "/" + name
	}
	values.key = func(v *externalmetricsv1beta1.ExternalMetricValue) string {
		// JSON orders the keys of a map, so equal sets have equal keys. Marshaling strings cannot fail.
		set, _ := json.Marshal(v.MetricLabels)
		return metric.Namespace + "/" + string(set)
	}
	values.sampleID = func(v *externalmetricsv1beta1.ExternalMetricValue) (time.Time, string) {
		return v.Timestamp.Time, v.Value.String()
	}
	return newWatcher(config, options, values)
}
