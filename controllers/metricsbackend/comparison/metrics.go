// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package comparison

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"
)

// Metric is a metric that autoscalers read.
type Metric struct {
	// Description names it, and one of its autoscalers.
	Description string
	// name is as in discovery: NAME of an external metric, RESOURCE/NAME of a custom one. selector is that of its series.
	name, selector string
	path           string
	query          url.Values
}

// MetricsOf returns the metrics that autoscalers read from a version of custom.metrics.k8s.io or
// external.metrics.k8s.io, each once. Those of pods are read without the selector of the autoscaler's target.
func MetricsOf(gv schema.GroupVersion, autoscalers []autoscalingv2.HorizontalPodAutoscaler, mapper meta.RESTMapper) ([]Metric, error) {
	var metrics []Metric
	known := sets.New[string]()
	for i := range autoscalers {
		for _, spec := range autoscalers[i].Spec.Metrics {
			m, err := metricOf(gv, autoscalers[i].Namespace, spec, mapper)
			if err != nil {
				return nil, fmt.Errorf("find the metrics of HorizontalPodAutoscaler %s/%s: %w", autoscalers[i].Namespace, autoscalers[i].Name, err)
			}
			key := m.path + "?" + m.query.Encode()
			if m.path == "" || known.Has(key) {
				continue
			}
			known.Insert(key)
			m.Description = fmt.Sprintf("%s (HorizontalPodAutoscaler %s/%s)", m.name, autoscalers[i].Namespace, autoscalers[i].Name)
			metrics = append(metrics, m)
		}
	}
	return metrics, nil
}

// metricOf returns a metric of an autoscaler, without its description; or the zero value if it is not of the version.
func metricOf(gv schema.GroupVersion, namespace string, spec autoscalingv2.MetricSpec, mapper meta.RESTMapper) (Metric, error) {
	root := "/apis/" + gv.String() + "/namespaces/" + namespace + "/"
	switch {
	case gv.Group == external_metrics.GroupName && spec.External != nil:
		// client-go asks in lower case.
		name := strings.ToLower(spec.External.Metric.Name)
		return newMetric(root+name, "labelSelector", name, spec.External.Metric.Selector)
	case gv.Group == custom_metrics.GroupName && spec.Pods != nil:
		m := spec.Pods.Metric
		return newMetric(root+"pods/*/"+m.Name, "metricLabelSelector", "pods/"+m.Name, m.Selector)
	case gv.Group == custom_metrics.GroupName && spec.Object != nil:
		m, object := spec.Object.Metric, spec.Object.DescribedObject
		kind := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind)
		if kind.GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
			return newMetric(root+"metrics/"+m.Name, "metricLabelSelector", "namespaces/"+m.Name, m.Selector)
		}
		// As the HPA controller, by any version.
		mapping, err := mapper.RESTMapping(kind.GroupKind())
		if meta.IsNoMatchError(err) {
			return Metric{}, nil // its autoscaler finds no object either
		}
		if err != nil {
			return Metric{}, err
		}
		of := mapping.Resource.GroupResource().String()
		return newMetric(root+of+"/"+object.Name+"/"+m.Name, "metricLabelSelector", of+"/"+m.Name, m.Selector)
	}
	return Metric{}, nil
}

func newMetric(path, parameter, name string, selector *metav1.LabelSelector) (Metric, error) {
	m := Metric{name: name, path: path}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return m, err
	}
	if m.selector = parsed.String(); m.selector != "" { // empty without a selector
		m.query = url.Values{parameter: {m.selector}}
	}
	return m, nil
}

// Unserved returns the metrics that an implementation with this discovery does not serve, as far as that tells. KEDA lists
// one resource for all of external metrics, and serves those of its ScaledObjects.
func Unserved(metrics []Metric, discovery metav1.APIResourceList) []Metric {
	const kedaResource, kedaLabel = "externalmetrics", "scaledobject.keda.sh/name="
	served := map[string]bool{}
	for _, r := range discovery.APIResources {
		served[strings.ToLower(r.Name)] = true
	}
	return slices.DeleteFunc(slices.Clone(metrics), func(m Metric) bool {
		return served[strings.ToLower(m.name)] || served[kedaResource] && strings.Contains(m.selector, kedaLabel)
	})
}
