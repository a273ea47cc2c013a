// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package comparison compares what the implementation behind someone else's APIService answers with what our pods
// answer, before a takeover: every node and pod, and each metric that an autoscaler reads.
package comparison

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"
)

const (
	// concurrency is how many metrics are read at the same time, and maxMetrics how many at all.
	concurrency = 8
	maxMetrics  = 500
	// metricTimeout bounds the two requests for one metric: a slow one is named, and does not use up the time of the others.
	metricTimeout = 5 * time.Second
	// tolerance is how much two values of a metric, read one after the other, may differ by themselves.
	tolerance = 0.1
)

// Get reads path from an implementation, as JSON. An error is what its clients get.
type Get func(ctx context.Context, path string, query url.Values, into any) error

// Result is what is different.
type Result struct {
	// Lost is what theirs answers and ours does not, and Changed what has another value, a line for each.
	Lost, Changed []string
}

// Objects compares the nodes and pods of a version of metrics.k8s.io by name: values differ by the time of a scrape.
func Objects(ctx context.Context, gv schema.GroupVersion, theirs, ours Get) (Result, error) {
	var found Result
	for _, kind := range []string{"nodes", "pods"} {
		var before, after metav1.PartialObjectMetadataList
		path := "/apis/" + gv.String() + "/" + kind
		if err := theirs(ctx, path, nil, &before); err != nil {
			return Result{}, fmt.Errorf("list %s of the other implementation: %w", kind, err)
		}
		if err := ours(ctx, path, nil, &after); err != nil {
			return Result{}, fmt.Errorf("list %s of our pods: %w", kind, err)
		}
		if lost := sets.List(names(before).Difference(names(after))); len(lost) > 0 {
			const shown = 3
			found.Lost = append(found.Lost, fmt.Sprintf("%d of %d %s, such as %s", len(lost), len(before.Items), kind, strings.Join(lost[:min(shown, len(lost))], ", ")))
		}
	}
	return found, nil
}

func names(list metav1.PartialObjectMetadataList) sets.Set[string] {
	all := sets.New[string]()
	for i := range list.Items {
		all.Insert(strings.TrimPrefix(list.Items[i].Namespace+"/"+list.Items[i].Name, "/"))
	}
	return all
}

// notKEDAs is in KEDA's internal error for a metric that is of no ScaledObject.
const notKEDAs = "scaledObject name is not specified"

// Values compares the values of metrics.
func Values(ctx context.Context, metrics []Metric, theirs, ours Get) (Result, error) {
	var mu sync.Mutex
	var found Result
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for _, m := range metrics[:min(len(metrics), maxMetrics)] {
		group.Go(func() error {
			one, cancel := context.WithTimeout(ctx, metricTimeout)
			defer cancel()
			before, failure := valuesOf(one, m, theirs)
			if apierrors.IsNotFound(failure) || failure != nil && strings.Contains(failure.Error(), notKEDAs) || failure == nil && len(before) == 0 {
				return nil // there is nothing to lose
			}
			after, err := valuesOf(one, m, ours)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			missing := sets.KeySet(before).Difference(sets.KeySet(after)).Len()
			was, is := total(before), total(after)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case failure != nil && len(after) > 0:
			case failure != nil:
				found.Lost = append(found.Lost, fmt.Sprintf("%s: no value, and the other implementation fails: %v", m.Description, failure))
			case err != nil:
				found.Lost = append(found.Lost, fmt.Sprintf("%s: %v", m.Description, err))
			case len(after) == 0:
				found.Lost = append(found.Lost, m.Description+": no value")
			case missing > 0:
				found.Lost = append(found.Lost, fmt.Sprintf("%s: no value of %d of %d objects", m.Description, missing, len(before)))
			case math.Abs(was-is) > tolerance*max(math.Abs(was), math.Abs(is)):
				found.Changed = append(found.Changed, fmt.Sprintf("%s: %g, and %g from our pods", m.Description, was, is))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Result{}, fmt.Errorf("compare the metrics of autoscalers: %w", err)
	}
	if n := len(metrics) - maxMetrics; n > 0 {
		found.Lost = append(found.Lost, fmt.Sprintf("%d further metrics were not compared", n))
	}
	slices.Sort(found.Lost)
	slices.Sort(found.Changed)
	return found, nil
}

// valuesOf returns the values of a metric by the objects that they describe. External ones describe none.
func valuesOf(ctx context.Context, m Metric, get Get) (map[string]float64, error) {
	var list struct {
		Items []struct {
			DescribedObject corev1.ObjectReference `json:"describedObject"`
			Value           resource.Quantity      `json:"value"`
		} `json:"items"`
	}
	if err := get(ctx, m.path, m.query, &list); err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for i := range list.Items {
		values[list.Items[i].DescribedObject.Name] += list.Items[i].Value.AsApproximateFloat64()
	}
	return values, nil
}

func total(values map[string]float64) (sum float64) {
	for _, value := range values {
		sum += value
	}
	return sum
}

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
