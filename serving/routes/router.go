// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/metrics/pkg/apis/custom_metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/metricsapi"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	// sharedFor is how long equal requests share an answer of another implementation.
	sharedFor = time.Second
	// watchInterval is the time between two requests for a metric that is watched: other implementations serve no
	// watches.
	watchInterval = 15 * time.Second
)

// OwnMetrics are those that rules and declared metrics define.
type OwnMetrics interface {
	query.ObjectMetrics
	query.ExternalMetrics
	// DefinesObjectMetric and DefinesExternalMetric report whether they define the metric of a request, be it that it
	// has no series now.
	DefinesObjectMetric(r query.ObjectRequest) bool
	DefinesExternalMetric(namespace, metric string) bool
}

// Router has the metrics of a MetricsBackend: OwnMetrics, and those of other implementations.
type Router struct {
	OwnMetrics
	// resources returns what another implementation lists in discovery.
	resources func(source string) []metav1.APIResource

	mu               sync.RWMutex
	custom, external []*route
	// count is that of the routes in the spec.
	count  int
	listed lists
}

var (
	_ query.ObjectMetrics   = &Router{}
	_ query.ExternalMetrics = &Router{}
)

// NewRouter returns a Router that routes nothing before Apply. resources returns the metrics that a source lists in its
// discovery, or what stands for them.
func NewRouter(own OwnMetrics, resources func(source string) []metav1.APIResource) *Router {
	return &Router{OwnMetrics: own, resources: resources}
}

// Apply replaces the routes.
func (r *Router) Apply(spec *v1alpha1.MetricsBackendSpec) {
	var custom, external []*route
	count := 0
	if s := spec.CustomMetrics; s != nil {
		count += len(s.Routes)
		custom = newRoutes(s.Routes, "spec.customMetrics", v1alpha1.CustomMetricsGroup, spec.Sources)
	}
	if s := spec.ExternalMetrics; s != nil {
		count += len(s.Routes)
		external = newRoutes(s.Routes, "spec.externalMetrics", v1alpha1.ExternalMetricsGroup, spec.Sources)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.custom, r.external, r.count = custom, external, count
}

// Health returns the problems of the routes in the order of the spec, how many routes there are, and how many of them
// are invalid.
func (r *Router) Health() (problems []v1alpha1.RuleHealth, count, invalid int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, all := range [][]*route{r.custom, r.external} {
		for _, route := range all {
			for _, p := range []*v1alpha1.RuleHealth{route.problem, route.collisionProblem()} {
				if p != nil {
					problems = append(problems, *p)
				}
			}
			if route.invalid() {
				invalid++
			}
		}
	}
	return problems, r.count, invalid
}

// find returns the route of a request to another implementation, nil if it is one of OwnMetrics, and, to explain, which later
// routes match it, too.
func find(all []*route, q request, explain bool, defines func() bool) (found *route, remarks []string) {
	if len(all) < 2 {
		return nil, nil // OwnMetrics alone
	}
	for _, each := range all {
		switch {
		case !each.matches(q), each.source == "" && !defines():
		case found == nil:
			found = each
			if !explain {
				return found.other(), nil
			}
		case each.source == "":
			remarks = append(remarks, "a rule or declared metric defines this metric, too, but the route of these (own) comes later")
		default:
			remarks = append(remarks, fmt.Sprintf("%s leads this metric to the source %q, too, but comes after what answers it", each.path, each.source))
		}
	}
	return found.other(), remarks
}

// other returns the route if it leads to another implementation, and nil otherwise.
func (r *route) other() *route {
	if r == nil || r.source == "" {
		return nil
	}
	return r
}

// ExternalQuery implements query.ExternalMetrics.
func (r *Router) ExternalQuery(q query.ExternalRequest) (query.MetricQuery, error) {
	r.mu.RLock()
	all := r.external
	r.mu.RUnlock()
	to, remarks := find(all, request{q.Namespace, q.Metric, q.Series}, q.Explain, func() bool { return r.DefinesExternalMetric(q.Namespace, q.Metric) })
	if to == nil {
		mq, err := r.OwnMetrics.ExternalQuery(q)
		mq.Remarks = remarks
		return mq, err
	}
	mq := query.MetricQuery{Origin: to.path, Remarks: remarks}
	expression := path("namespaces", q.Namespace, query.EscapeName(q.Metric)) + parameters(map[string]labels.Selector{"labelSelector": q.Series})
	tenant := q.Namespace
	if tenant == query.AllNamespaces {
		tenant = ""
	}
	mq.Passes, mq.Query = true, to.query(expression, tenant, q.Watch)
	return mq, nil
}

// ObjectQuery implements query.ObjectMetrics. What another implementation describes is as the client wrote it.
func (r *Router) ObjectQuery(q query.ObjectRequest) (query.MetricQuery, query.ObjectMetric, error) {
	r.mu.RLock()
	all := r.custom
	r.mu.RUnlock()
	object, namespace := custom_metrics.AllObjects, q.Namespace
	if len(q.Names) == 1 && !q.Selected {
		object = q.Names[0]
	}
	if q.Resource == namespaces && object != custom_metrics.AllObjects {
		namespace = object
	}
	to, remarks := find(all, request{namespace, q.Metric, q.Series}, q.Explain, func() bool { return r.DefinesObjectMetric(q) })
	if to == nil {
		mq, metric, err := r.OwnMetrics.ObjectQuery(q)
		mq.Remarks = remarks
		return mq, metric, err
	}
	var segments []string
	if q.Namespace != "" {
		segments = []string{"namespaces", q.Namespace}
	}
	if q.Resource == namespaces {
		segments = []string{"namespaces", object, "metrics", q.Metric}
	} else {
		segments = append(segments, q.Resource.String(), object, q.Metric)
	}
	mq := query.MetricQuery{Origin: to.path, Remarks: remarks, ObjectLabel: metricsapi.ObjectLabel, Passes: true}
	mq.Query = to.query(path(segments...)+parameters(map[string]labels.Selector{"labelSelector": q.Objects, "metricLabelSelector": q.Series}), namespace, q.Watch)
	return mq, query.ObjectMetric{Resource: q.Resource, Name: q.Metric}, nil
}

var namespaces = schema.GroupResource{Resource: "namespaces"}

// query returns the query of a request to another implementation.
func (r *route) query(expression, tenant string, watch bool) query.Query {
	q := query.Query{Source: r.source, Expression: expression, Interval: sharedFor, Tenant: tenant, Live: true}
	if watch {
		q.Interval, q.Live = watchInterval, false
	}
	return q
}

// path returns the path of segments below the version of an API group.
func path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteString("/" + url.PathEscape(s))
	}
	return b.String()
}

// parameters returns those of a request for selectors by their names, with the question mark.
func parameters(selectors map[string]labels.Selector) string {
	values := url.Values{}
	for name, s := range selectors {
		if s != nil && !s.Empty() {
			values.Set(name, s.String())
		}
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}
