// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/metrics/pkg/apis/custom_metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// watchLimit is how long a watch by ?watch=true lasts at most. The paths below /watch/
// are watches to kube-apiserver, too, and have no such limit.
func watchLimit(*request.RequestInfo) time.Duration { return valueapi.ShortWatch }

// metricsResource is the pseudo-resource of a namespace's own metrics.
const metricsResource = "metrics"

var namespaces = schema.GroupResource{Resource: "namespaces"}

// target is what a path names.
type target struct {
	resource schema.GroupResource
	// namespace of the objects; empty for those without one.
	namespace string
	// name of an object, or all.
	name   string
	metric string
	// series is metricLabelSelector; nil for none.
	series labels.Selector
}

func (t *target) all() bool { return t.name == custom_metrics.AllObjects }

// parse reads a target from what was authorized: so nobody is answered about anything
// else.
func parse(info *request.RequestInfo, query url.Values) (*target, error) {
	t := &target{}
	switch {
	case slices.Contains(info.Parts, ""):
		return nil, noSuchPath(info)
	case len(info.Parts) == 2 && info.Parts[0] == metricsResource && info.Namespace != "":
		t.resource, t.name, t.metric = namespaces, info.Namespace, info.Parts[1]
	case len(info.Parts) == 3 && info.Parts[0] != namespaces.Resource:
		t.resource = schema.ParseGroupResource(info.Parts[0])
		if t.resource.Resource == "" || t.resource.String() != info.Parts[0] {
			return nil, noSuchPath(info) // "pods." is authorized as another resource than pods
		}
		t.namespace, t.name, t.metric = info.Namespace, info.Parts[1], info.Parts[2]
	default:
		return nil, noSuchPath(info)
	}
	if t.namespace == custom_metrics.AllObjects {
		return nil, apierrors.NewBadRequest("metrics of objects are asked for one namespace at a time; * stands for all namespaces only in namespaces/*/metrics/METRIC")
	}
	for what, segment := range map[string]string{"namespace": t.namespace, "name of an object": t.name, "name of a metric": t.metric} {
		if invalid := content.IsPathSegmentName(segment); len(invalid) > 0 {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%q is not the %s: it %s", segment, what, strings.Join(invalid, ", and ")))
		}
	}
	if strings.Contains(t.metric, "?") {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%q is not the name of a metric: it may not contain '?'", t.metric))
	}
	if text := query.Get(metricLabelSelector); text != "" {
		selector, err := labels.Parse(text)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%s: %v", metricLabelSelector, err))
		}
		if !selector.Empty() {
			t.series = selector
		}
	}
	return t, nil
}

// metricLabelSelector is the parameter of a query that selects among the series of a
// metric.
const metricLabelSelector = "metricLabelSelector"

// noSuchPath is the answer at paths that look like one of ours. The branches of the
// tree (all metrics of a pod, all pods) are left out by the proposal, too.
func noSuchPath(info *request.RequestInfo) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("nothing is at %s: metrics are at [namespaces/NAMESPACE/]RESOURCE[.GROUP]/NAME/METRIC, where * is the NAME of all objects, "+
			"and those of a namespace at namespaces/NAMESPACE/metrics/METRIC", info.Path),
	}}
}

// routes are the paths of the proposal, and the same for watches alone.
func (r *reader) routes() []valueapi.Route {
	parse := func(info *request.RequestInfo, query url.Values) (valueapi.Request, error) {
		t, err := parse(info, query)
		if err != nil {
			return nil, err
		}
		return &targetRequest{reader: r, target: *t}, nil
	}
	series := valueapi.Parameter{Name: metricLabelSelector, Query: true,
		Doc: "A selector to restrict the series of the metric by their labels. Defaults to everything."}
	namespace := valueapi.Parameter{Name: "namespace", Doc: "Namespace of the objects."}
	object := []valueapi.Parameter{
		{Name: "resource", Doc: "Plural name of the objects' resource, with .GROUP unless it is of the core group."},
		{Name: "name", Doc: "Name of the object, or * for all that labelSelector selects."},
		{Name: "metric", Doc: "Name of the metric."}, series,
	}
	var routes []valueapi.Route
	for _, p := range []struct {
		path, what, operation string
		parameters            []valueapi.Parameter
	}{
		{"{resource}/{name}/{metric}", "a metric of objects that have no namespace", "RootScopedMetricValue", object},
		{"namespaces/{namespace}/{resource}/{name}/{metric}", "a metric of objects in a namespace", "NamespacedMetricValue", append(object, namespace)},
		{"namespaces/{namespace}/metrics/{metric}", "a metric of a namespace", "NamespaceMetricValue", []valueapi.Parameter{
			{Name: "namespace", Doc: "Name of the namespace, or * for all that labelSelector selects."},
			{Name: "metric", Doc: "Name of the metric."}, series,
		}},
	} {
		routes = append(routes,
			valueapi.Route{
				Path: "/" + p.path, Doc: "list or watch " + p.what, Operation: "list" + p.operation,
				Parameters: p.parameters, WatchLimit: watchLimit, Parse: parse,
			},
			valueapi.Route{
				Path: "/watch/" + p.path, Doc: "watch " + p.what, Operation: "watch" + p.operation,
				Parameters: p.parameters, WatchOnly: true, Parse: parse,
			})
	}
	return routes
}
