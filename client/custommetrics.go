// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/apis/custom_metrics/install"
	custommetricsv1beta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
)

// CustomMetric is a metric of objects, in custom.metrics.k8s.io.
type CustomMetric struct {
	// Resource of the objects in the plural, such as pods, and its Group unless that is core.
	Resource schema.GroupResource
	// Namespace of the objects; empty for cluster-scoped objects such as nodes and namespaces.
	Namespace string
	// Name of a single object; empty for all objects that Options.LabelSelector selects.
	Name string
	// Metric is the metric's name.
	Metric string
	// MetricSelector selects series of the metric, in kubectl's syntax. Empty for all.
	MetricSelector string
}

// Custom returns a Watcher of the values of a metric, one for each object. It sends no request before Sync or Run. Set
// MaxAge to at least three times the interval at which the metric is evaluated.
func Custom(config *rest.Config, metric CustomMetric, options Options) (*Watcher[custommetricsv1beta2.MetricValue], error) {
	if err := metric.validate(options); err != nil {
		return nil, err
	}
	items := func(l *custommetricsv1beta2.MetricValueList) []custommetricsv1beta2.MetricValue { return l.Items }
	values := newAPI(custommetricsv1beta2.SchemeGroupVersion, install.Install, options, items)
	if metric.MetricSelector != "" {
		values.query.Set("metricLabelSelector", metric.MetricSelector)
	}
	values.versions, values.resource = []string{"v1beta2", "v1beta1"}, metric.Resource.String()+"/"+metric.Metric
	values.path, values.maybeUndiscovered, values.listPathWatchable = metric.path, true, true
	values.key = func(v *custommetricsv1beta2.MetricValue) string {
		if v.DescribedObject.Namespace == "" {
			return v.DescribedObject.Name
		}
		return v.DescribedObject.Namespace + "/" + v.DescribedObject.Name
	}
	values.sampleID = func(v *custommetricsv1beta2.MetricValue) (time.Time, string) {
		// There is no resourceVersion, and timestamps are in whole seconds.
		return v.Timestamp.Time, v.Value.String()
	}
	return newWatcher(config, options, values)
}

// path returns a path of the Custom Metrics API, in which the metrics of a namespace are a pseudo-resource of it.
func (m CustomMetric) path(version string, watch bool) string {
	name := cmp.Or(m.Name, custommetricsv1beta2.AllObjects)
	var path strings.Builder
	path.WriteString("/apis/" + custommetricsv1beta2.GroupName + "/" + version)
	if watch {
		path.WriteString("/watch")
	}
	switch {
	case m.ofNamespaces():
		path.WriteString("/namespaces/" + name + "/metrics/" + m.Metric)
	case m.Namespace != "":
		path.WriteString("/namespaces/" + m.Namespace + "/" + m.Resource.String() + "/" + name + "/" + m.Metric)
	default:
		path.WriteString("/" + m.Resource.String() + "/" + name + "/" + m.Metric)
	}
	return path.String()
}

func (m CustomMetric) ofNamespaces() bool {
	return m.Resource == schema.GroupResource{Resource: "namespaces"}
}

func (m CustomMetric) validate(options Options) error {
	if m.Resource.Resource == "" {
		return errors.New("a metric of which objects? Resource is empty")
	}
	if m.ofNamespaces() && m.Namespace != "" {
		return fmt.Errorf("a namespace has no namespace: give %q as Name", m.Namespace)
	}
	if m.Name != "" && options.LabelSelector != "" {
		return fmt.Errorf("option LabelSelector selects among objects: take it out, or the name %q", m.Name)
	}
	for what, name := range map[string]string{
		"resource": m.Resource.String(), "namespace": m.Namespace, "name": m.Name,
	} {
		if wrong := content.IsPathSegmentName(name); name != "" && len(wrong) > 0 {
			return fmt.Errorf("%s %q: %s", what, name, strings.Join(wrong, ", "))
		}
	}
	if _, err := labels.Parse(m.MetricSelector); err != nil {
		return fmt.Errorf("metric selector %q: %w", m.MetricSelector, err)
	}
	return validateMetricName(m.Metric, options)
}

// validateMetricName returns an error for a name that would change the path of requests.
func validateMetricName(name string, options Options) error {
	if options.FieldSelector != "" {
		return errors.New("option FieldSelector: metrics have no fields to select by")
	}
	if name == "" {
		return errors.New("the name of the metric is empty")
	}
	if wrong := content.IsPathSegmentName(name); len(wrong) > 0 || strings.Contains(name, "?") {
		return fmt.Errorf("metric %q: the names . and .. and the characters / %% ? cannot be asked for", name)
	}
	return nil
}
