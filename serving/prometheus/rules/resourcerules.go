// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"time"

	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/querytemplate"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// defaultWindow is what values of resource rules are said to look back.
const defaultWindow = time.Minute

// ResourceQueries are the resource rules as they are asked.
type ResourceQueries struct {
	// Source is its name in spec.sources.
	Source string
	// Interval between two evaluations, and Window that the values look back.
	Interval, Window time.Duration
	// CPU in cores, and Memory in bytes.
	CPU, Memory ResourceQuery
}

// HasNodes says whether there are figures of nodes: a node without one of the two has no
// point.
func (q *ResourceQueries) HasNodes() bool { return q.CPU.Nodes != "" && q.Memory.Nodes != "" }

// ResourceQuery asks for one resource of nodes and of containers.
type ResourceQuery struct {
	// Nodes is the expression for all nodes, and NodeLabel names them; empty where the
	// rules are for pods alone.
	Nodes, NodeLabel string
	// Containers is the expression for the containers of all pods. It is empty where
	// the query loses the namespace, so that pods of the same name would be taken
	// together; then ContainersIn is asked namespace by namespace.
	Containers string
	// NamespaceLabel, PodLabel and ContainerLabel name a container.
	NamespaceLabel, PodLabel, ContainerLabel string

	containers *querytemplate.Template
}

// ContainersIn returns the expression for the containers of all pods of a namespace.
// The series of its answer need not have NamespaceLabel.
func (q *ResourceQuery) ContainersIn(namespace string) (string, error) {
	if err := checkNamespace(namespace); err != nil {
		return "", err
	}
	return q.render(promql.Equal(q.NamespaceLabel, namespace), namespace, []string{q.PodLabel, q.ContainerLabel})
}

// wide returns the expression for some of the namespaces, or all, grouped by them too.
func (q *ResourceQuery) wide(m promql.Matcher, value string) (string, error) {
	return q.render(m, value, []string{q.NamespaceLabel, q.PodLabel, q.ContainerLabel})
}

func (q *ResourceQuery) render(namespace promql.Matcher, value string, groupBy []string) (string, error) {
	r := &request{
		matchers: []string{namespace.String()},
		data:     querytemplate.Query{LabelValuesByName: map[string]string{namespace.Label: value}},
	}
	r.all(q.PodLabel)
	r.group(groupBy...)
	return render(q.containers, r.query())
}

// core are the resources that resource rules are about.
var core = restmapping.NewIndex(
	[]*metav1.APIGroup{{PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "v1", Version: "v1"}}},
	[]*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "namespaces", SingularName: "namespace", Kind: "Namespace"},
		{Name: "nodes", SingularName: "node", Kind: "Node"},
		{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true},
	}}},
)

// CompileResourceRules makes queries of resource rules, or says what is wrong with them.
// The queries for containers are needed: without one of them there are no figures that an
// autoscaler can use. Without those for nodes only nodes have none, and the queries come
// with what is said of that.
func CompileResourceRules(rules *v1alpha1.ResourceRules, specs []v1alpha1.SourceSpec) (*ResourceQueries, []v1alpha1.RuleHealth) {
	const path = "spec.resourceMetrics.rules"
	var health []v1alpha1.RuleHealth
	note := func(path string, p *problem) {
		if p != nil {
			health = append(health, p.health(path))
		}
	}
	q := &ResourceQueries{Window: defaultWindow}
	src, p := newSources(specs).find(rules.Source)
	note(path, p)
	if p == nil {
		q.Source = src.name
		var err error
		if q.Interval, err = rules.Interval.Duration(src.interval); err != nil {
			note(path, invalidf(ReasonInvalidInterval, "%v", err))
		}
	}
	if rules.Window != "" {
		window, err := model.ParseDuration(rules.Window)
		if err != nil || window <= 0 {
			note(path, invalidf(ReasonInvalidWindow, "window %q is not a duration such as 5m or 1d", rules.Window))
		}
		q.Window = time.Duration(window)
	}
	note(path+".cpu", q.CPU.compile(rules.CPU))
	note(path+".memory", q.Memory.compile(rules.Memory))
	if len(health) > 0 {
		return nil, health
	}
	note(path+".cpu.nodeQuery", q.CPU.withoutNodes())
	note(path+".memory.nodeQuery", q.Memory.withoutNodes())
	return q, health
}

func (q *ResourceQuery) compile(spec v1alpha1.ResourceRule) *problem {
	a, p := compileAssociation(spec.Resources)
	if p != nil {
		return p
	}
	resolved := a.resolve(core)
	for _, needed := range []struct {
		resource string
		label    *string
	}{{"namespaces", &q.NamespaceLabel}, {"pods", &q.PodLabel}} {
		if *needed.label = resolved.labelOf(needed.resource); *needed.label == "" {
			return invalidf(ReasonInvalidResources, "resources names no label of %s: add it to resources.overrides", needed.resource)
		}
	}
	q.NodeLabel = resolved.labelOf("nodes")
	if q.ContainerLabel = spec.ContainerLabel; !model.UTF8Validation.IsValidLabelName(q.ContainerLabel) {
		return invalidf(ReasonInvalidResources, "containerLabel is %q: name the label that holds the container's name", spec.ContainerLabel)
	}
	if p := q.compileNodes(spec.NodeQuery); p != nil {
		return p
	}
	return q.compileContainers(spec.ContainerQuery)
}

func (q *ResourceQuery) compileNodes(text string) *problem {
	if strings.TrimSpace(text) == "" || q.NodeLabel == "" {
		return nil // see withoutNodes
	}
	tmpl, err := querytemplate.Parse("nodeQuery", text)
	if err == nil {
		r := &request{data: querytemplate.Query{LabelValuesByName: map[string]string{}}}
		r.all(q.NodeLabel)
		q.Nodes, err = render(tmpl, r.query())
	}
	if err != nil {
		return invalidf(ReasonInvalidMetricsQuery, "nodeQuery does not make PromQL: %v", err)
	}
	return nil
}

// withoutNodes says why there are no figures of nodes; nil where there are. Whoever has no
// exporter on nodes can still scale by what pods use.
func (q *ResourceQuery) withoutNodes() *problem {
	switch {
	case q.Nodes != "":
		return nil
	case q.NodeLabel == "":
		return failingf(true, ReasonInvalidResources, "nodes have no figures, and pods have theirs: resources names no label of nodes: add it to resources.overrides")
	}
	return failingf(true, ReasonInvalidMetricsQuery, "nodes have no figures, and pods have theirs: nodeQuery is empty")
}

func (q *ResourceQuery) compileContainers(text string) *problem {
	if strings.TrimSpace(text) == "" {
		return invalidf(ReasonInvalidMetricsQuery, "containerQuery is empty")
	}
	var err error
	if q.containers, err = querytemplate.Parse("containerQuery", text); err == nil {
		_, err = q.ContainersIn("default")
	}
	if err != nil {
		return invalidf(ReasonInvalidMetricsQuery, "containerQuery does not make PromQL: %v", err)
	}
	one, err := q.wide(promql.Equal(q.NamespaceLabel, someObject), someObject)
	if err != nil {
		return nil // it is asked by namespace
	}
	two, err := q.wide(promql.Equal(q.NamespaceLabel, someObject, anotherObject), alternatives([]string{someObject, anotherObject}))
	if err != nil {
		return nil // it is asked by namespace
	}
	all, err := q.wide(promql.Set(q.NamespaceLabel), promql.Anything)
	if err != nil {
		return nil // it is asked by namespace
	}
	if promql.Separable(promql.Rendering{Label: q.NamespaceLabel, First: someObject, Second: anotherObject, One: one, Two: two, All: all}) {
		q.Containers = all
	}
	return nil
}

// labelOf returns the label of a resource: the first override that names it, or what the
// template makes; empty where there is none.
func (r *resolved) labelOf(resource string) string {
	for _, label := range r.labels {
		if known, ok := r.resources[label]; ok && known.GroupResource() == (schema.GroupResource{Resource: resource}) {
			return label
		}
	}
	known, ok := r.index.Find(schema.GroupResource{Resource: resource})
	if !ok || r.template == nil {
		return ""
	}
	label, err := r.make(known)
	if err != nil {
		return ""
	}
	return label
}
