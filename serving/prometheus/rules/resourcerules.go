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
	"github.com/metricsbackend/metrics-backend-operator/internal/querytemplate"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// defaultWindow is the window that is reported if the rules set none.
const defaultWindow = time.Minute

// ResourceQueries are compiled resource rules.
type ResourceQueries struct {
	// Source is its name in spec.sources.
	Source string
	// Interval is the time between evaluations, and Window the range of the values.
	Interval, Window time.Duration
	// CPU in cores, and Memory in bytes.
	CPU, Memory ResourceQuery
}

// HasNodes reports whether there are queries for nodes. A node needs both resources.
func (q *ResourceQueries) HasNodes() bool { return q.CPU.Nodes != "" && q.Memory.Nodes != "" }

// ResourceQuery holds the queries of one resource.
type ResourceQuery struct {
	// Nodes is the expression for all nodes, and NodeLabel the label with their names; empty if
	// the rules are for pods only.
	Nodes, NodeLabel string
	// Containers is the expression for the containers of all pods. It is empty if the query
	// drops the namespace, so that pods of the same name would be mixed up; then ContainersIn
	// is evaluated for each namespace.
	Containers string
	// NamespaceLabel, PodLabel and ContainerLabel identify a container.
	NamespaceLabel, PodLabel, ContainerLabel string

	containers *querytemplate.Template
}

// ContainersIn returns the expression for the containers of all pods of a namespace. Its
// results may lack NamespaceLabel.
func (q *ResourceQuery) ContainersIn(namespace string) (string, error) {
	if err := checkNamespace(namespace); err != nil {
		return "", err
	}
	return q.render([]string{namespace}, q.PodLabel, q.ContainerLabel)
}

// acrossNamespaces returns the expression for some namespaces, or all for nil, grouped by them,
// too.
func (q *ResourceQuery) acrossNamespaces(namespaces []string) (string, error) {
	return q.render(namespaces, q.NamespaceLabel, q.PodLabel, q.ContainerLabel)
}

func (q *ResourceQuery) render(namespaces []string, groupBy ...string) (string, error) {
	r := &templateInput{data: querytemplate.Query{LabelValuesByName: map[string]string{}}}
	r.selectObjects(q.NamespaceLabel, namespaces)
	r.selectObjects(q.PodLabel, nil)
	r.groupBy(groupBy...)
	e, err := render(q.containers, r.query())
	return e.text, err
}

// core has the resources of resource rules.
var core = restmapping.NewMapper(
	[]*metav1.APIGroup{{PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "v1", Version: "v1"}}},
	[]*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "namespaces", SingularName: "namespace", Kind: "Namespace"},
		{Name: "nodes", SingularName: "node", Kind: "Node"},
		{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true},
	}}},
)

// CompileResourceRules compiles resource rules. It returns no queries if any is invalid or one for
// containers is missing, since autoscalers could not use the metrics. Without queries for nodes
// it returns those for containers with the problem.
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
			note(path, invalidf(ReasonInvalidInterval, "interval %v", err))
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
		r := &templateInput{data: querytemplate.Query{LabelValuesByName: map[string]string{}}}
		r.selectObjects(q.NodeLabel, nil)
		var e expression
		e, err = render(tmpl, r.query())
		q.Nodes = e.text
	}
	if err != nil {
		return invalidf(ReasonInvalidMetricsQuery, "nodeQuery does not make PromQL: %v", err)
	}
	return nil
}

// withoutNodes returns why there is no query for nodes, nil if there is one. Without an exporter
// on nodes pods can still be scaled.
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
	// Otherwise ContainersIn is used.
	if all, ok := separable(q.NamespaceLabel, q.acrossNamespaces); ok {
		q.Containers = all
	}
	return nil
}

// labelOf returns the label of a resource: that of the first override for it, or of the
// template; empty if there is none.
func (r *resolvedAssociation) labelOf(resource string) string {
	for _, label := range r.labels {
		if known, ok := r.resources[label]; ok && known.GroupResource() == (schema.GroupResource{Resource: resource}) {
			return label
		}
	}
	known, ok := r.index.Find(schema.GroupResource{Resource: resource})
	if !ok || r.template == nil {
		return ""
	}
	label, err := r.label(known)
	if err != nil {
		return ""
	}
	return label
}
