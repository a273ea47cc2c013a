// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	kindCustomMetric   = "CustomMetric"
	kindExternalMetric = "ExternalMetric"
)

// Defaults of a fallback.
const (
	defaultAfterFailures = 3
	defaultLastValueAge  = 10 * time.Minute
)

// Declared is a metric that a team declared.
type Declared struct {
	// DeclaredHealth says which object declares it. Its Reason and Message are why it is not in effect; empty if it is.
	// The rest is unset.
	v1alpha1.DeclaredHealth
	// MetricQuery yields all values of the metric.
	MetricQuery query.MetricQuery
	// Remark names a rule with the same metric, which it overrides in its namespace, or a metric whose
	// name differs in case alone.
	Remark string
}

// declaredObject has the common fields of both kinds.
type declaredObject struct {
	kind      string
	meta      *metav1.ObjectMeta
	spec      *v1alpha1.DeclaredMetricSpec
	describes *v1alpha1.DescribedObjects
	labels    map[string]string
	duplicate v1alpha1.DuplicatesPolicy
}

type declaredID struct {
	kind string
	types.NamespacedName
}

// declared is a compiled Declared. It is immutable.
type declared struct {
	Declared
	created time.Time
	// metric has only a name if it describes no objects.
	metric query.ObjectMetric
}

// namespacedMetric identifies a metric in a namespace.
type namespacedMetric struct {
	namespace string
	metricKey
}

// declaringNamespace returns the namespace whose declared metrics a request may read: for metrics
// that describe a namespace, the one that is named. If a selector selects namespaces, rules
// define the values, even if it selects only one: a client that reads all namespaces must not
// get what one of them declares about itself.
func declaringNamespace(r query.ObjectRequest, key metricKey) string {
	if key.resource == namespaces && r.Namespace == "" && len(r.Names) == 1 && !r.Selected {
		return r.Names[0]
	}
	return r.Namespace
}

// Declare sets all declared metrics. The objects must not be modified afterwards.
func (c *Catalog) Declare(custom []*v1alpha1.CustomMetric, external []*v1alpha1.ExternalMetric) {
	objects := make([]declaredObject, 0, len(custom)+len(external))
	for _, o := range custom {
		objects = append(objects, declaredObject{kindCustomMetric, &o.ObjectMeta, &o.Spec.DeclaredMetricSpec, &o.Spec.DescribedObject, nil, o.Spec.DuplicatesPolicy})
	}
	for _, o := range external {
		objects = append(objects, declaredObject{kindExternalMetric, &o.ObjectMeta, &o.Spec.DeclaredMetricSpec, nil, o.Spec.Labels, ""})
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	c.objects = objects
	c.updateDeclared(false)
}

// Declared returns all declared metrics in order.
func (c *Catalog) Declared() []Declared {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]Declared, len(c.declaredAll))
	for i, d := range c.declaredAll {
		all[i] = d.Declared
		if d.Reason != "" {
			continue
		}
		if overridden := c.metrics.effective(keyOf(d.metric)); overridden != nil {
			all[i].Remark = fmt.Sprintf("%s makes the metric %q too, and does not count in this namespace", overridden.rule.path, d.metric.Name)
		}
		if d.Kind == kindExternalMetric {
			if both := c.ambiguous(d.Namespace, d.metric.Name); both != "" {
				all[i].Remark = strings.TrimPrefix(all[i].Remark+"; "+both, "; ")
			}
		}
	}
	return all
}

// updateDeclared compiles the declared metrics: all of them, or those that have changed.
// c.changing is held.
func (c *Catalog) updateDeclared(recompile bool) {
	compiled := make(map[declaredID]*declared, len(c.objects))
	all := make([]*declared, 0, len(c.objects))
	for i := range c.objects {
		o := &c.objects[i]
		id := declaredID{o.kind, types.NamespacedName{Namespace: o.meta.Namespace, Name: o.meta.Name}}
		d := c.compiled[id]
		// Objects from a file have no generation, so a change would go unnoticed.
		if recompile || d == nil || d.UID != o.meta.UID || d.Generation != o.meta.Generation || o.meta.Generation == 0 {
			d = c.compileDeclared(o)
		}
		compiled[id] = d
		all = append(all, d)
	}
	c.compiled = compiled
	slices.SortFunc(all, func(a, b *declared) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), a.created.Compare(b.created), strings.Compare(a.Name, b.Name))
	})
	inEffect, spelled := map[namespacedMetric]*declared{}, spellings{}
	for i, d := range all {
		if d.Reason != "" {
			continue
		}
		key := namespacedMetric{d.Namespace, keyOf(d.metric)}
		first := inEffect[key]
		if first == nil {
			inEffect[key] = d
			if key.external() {
				spelled.add(d.Namespace, key.name)
			}
			continue
		}
		second := *d
		second.Reason = ReasonCollision
		second.Message = fmt.Sprintf("the metric %q is declared by %s %s already, which is older: give another spec.metricName", d.metric.Name, first.Kind, first.Name)
		all[i] = &second
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.declaredAll, c.declared, c.spellings = all, inEffect, spelled
	c.health.CustomMetrics, c.health.ExternalMetrics = c.countMetrics(false), c.countMetrics(true)
	c.cachedLists = nil
}

// compileDeclared returns the metric query of a declared metric.
func (c *Catalog) compileDeclared(o *declaredObject) *declared {
	d := &declared{
		Declared: Declared{DeclaredHealth: v1alpha1.DeclaredHealth{
			Kind: o.kind, Namespace: o.meta.Namespace, Name: o.meta.Name, UID: o.meta.UID, Generation: o.meta.Generation,
		}},
		created: o.meta.CreationTimestamp.Time,
		metric:  query.ObjectMetric{Name: cmp.Or(o.spec.MetricName, o.meta.Name)},
	}
	if p := c.compileDeclaredQuery(d, o); p != nil {
		d.Reason, d.Message = p.reason, p.message
	}
	return d
}

func (c *Catalog) compileDeclaredQuery(d *declared, o *declaredObject) *problem {
	if err := checkMetricName(d.metric.Name, o.describes == nil); err != nil {
		return invalidf(ReasonInvalidName, "spec.metricName: %v", err)
	}
	src, p := c.sources.find(o.spec.Source)
	if p != nil {
		return p
	}
	e, err := declaredQuery(o, src)
	if err != nil {
		return invalidf(ReasonInvalidQuery, "spec.query: %v", err)
	}
	d.MetricQuery = query.MetricQuery{
		Query:       query.Query{Source: src.name, Expression: e.text, Interval: src.intervalOr(o.spec.Interval), Tenant: o.meta.Namespace, Declared: true},
		Origin:      d.path(),
		Window:      e.window,
		Labels:      o.labels,
		Duplicates:  cmp.Or(o.duplicate, v1alpha1.DuplicatesReject),
		OmitInvalid: o.spec.InvalidValuesPolicy == v1alpha1.InvalidValuesOmit,
		Fallback:    fallback(o.spec.Fallback),
	}
	if o.describes == nil {
		return nil
	}
	return c.compileDescribes(d, o)
}

// compileDescribes sets the objects that the values describe.
func (c *Catalog) compileDescribes(d *declared, o *declaredObject) *problem {
	gr := schema.GroupResource{Group: o.describes.Group, Resource: o.describes.Resource}
	resource, ok := c.index.Find(gr)
	if !ok {
		if c.index.Empty() {
			return invalidf(ReasonUnknownResource, "the cluster's resources are not known yet")
		}
		return invalidf(ReasonUnknownResource, "spec.describedObject: the cluster has no resource %s: check group and resource; if it is installed later, it is found", gr)
	}
	d.metric = query.ObjectMetric{Resource: resource.GroupResource(), Kind: resource.Kind, Namespaced: resource.Namespaced, Name: d.metric.Name}
	if !resource.Namespaced && (resource.GroupResource() != namespaces || o.describes.Name != o.meta.Namespace) {
		return invalidf(ReasonInvalidResources, "spec.describedObject: %s are in no namespace; a CustomMetric describes objects of its own namespace, or that namespace by its name", gr)
	}
	d.MetricQuery.Object, d.MetricQuery.ObjectLabel = o.describes.Name, o.describes.NameLabel
	return nil
}

// declaredQuery returns the query, confined to the namespace if the source wants that.
func declaredQuery(o *declaredObject, src *source) (expression, error) {
	text := strings.TrimSpace(o.spec.Query)
	if text == "" {
		return expression{}, fmt.Errorf("it is empty")
	}
	parsed, err := promql.Parse(text)
	if err != nil {
		return expression{}, err
	}
	if src.confines(o.meta.Namespace) {
		text, err = promql.Confine(parsed, src.namespaceLabel, o.meta.Namespace)
	}
	return expression{text, promql.Window(parsed)}, err
}

func fallback(spec *v1alpha1.MetricFallback) *query.Fallback {
	if spec == nil {
		return nil
	}
	f := &query.Fallback{AfterFailures: defaultAfterFailures, MaxAge: defaultLastValueAge}
	if spec.AfterFailures != nil {
		f.AfterFailures = int(*spec.AfterFailures)
	}
	if spec.Value != nil {
		f.Static = new(spec.Value.AsApproximateFloat64())
	}
	if spec.LastValue != nil && spec.LastValue.MaxAge != nil {
		f.MaxAge = spec.LastValue.MaxAge.Duration
	}
	return f
}

// read returns the metric query for those of the values that a selector selects: the query
// stays the same for everyone.
func (d *declared) read(series labels.Selector) query.MetricQuery {
	mq := d.MetricQuery
	mq.Select = selectSeries(series, false)
	return mq
}
