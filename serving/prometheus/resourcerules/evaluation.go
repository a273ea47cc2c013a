// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcerules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// Reasons of problems other than failures of the source.
const (
	// ReasonNoFigures means that a query returns nothing that can be used.
	ReasonNoFigures = "NoFigures"
	// ReasonUnusableFigures means that some values of a result cannot be used.
	ReasonUnusableFigures = "UnusableFigures"
)

// evaluation is one evaluation of all queries. Each query has values of its own, so they
// need no lock.
type evaluation struct {
	queries *rules.ResourceQueries
	store   *samplestore.Store
	at      time.Time

	cpuNodes, memoryNodes           values
	cpuContainers, memoryContainers values

	mu     sync.Mutex
	report Report
	// hold is the longest Retry-After of the source.
	hold time.Duration
}

// rulesPath is the path of the rules in a MetricsBackend.
const rulesPath = "spec.resourceMetrics.rules"

func (e *evaluation) problem(field string, state v1alpha1.RuleState, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.report.Problems = append(e.report.Problems, v1alpha1.RuleHealth{Path: rulesPath + field, State: state, Reason: reason, Message: message})
}

// evaluate runs the queries concurrently, for the same instant.
func (e *evaluation) evaluate(ctx context.Context, source query.Source) {
	cpu, memory := &e.queries.CPU, &e.queries.Memory
	e.cpuNodes, e.memoryNodes = newValues(nanocores), newValues(bytes)
	e.cpuContainers, e.memoryContainers = newValues(nanocores), newValues(bytes)
	var running sync.WaitGroup
	if e.queries.HasNodes() {
		running.Go(func() { e.nodes(ctx, source, cpu, &e.cpuNodes, ".cpu.nodeQuery") })
		running.Go(func() { e.nodes(ctx, source, memory, &e.memoryNodes, ".memory.nodeQuery") })
	}
	running.Go(func() { e.containers(ctx, source, cpu, &e.cpuContainers, ".cpu.containerQuery") })
	running.Go(func() { e.containers(ctx, source, memory, &e.memoryContainers, ".memory.containerQuery") })
	running.Wait()
}

func (e *evaluation) nodes(ctx context.Context, source query.Source, q *rules.ResourceQuery, v *values, path string) {
	result, err := source.Evaluate(ctx, query.Query{Expression: q.Nodes}, e.at)
	if err != nil {
		e.failed(path, err)
		return
	}
	unknown := ""
	for _, s := range result.Samples {
		name := s.Labels[q.NodeLabel]
		if !e.store.Nodes.Known(samplestore.Key{Name: name}) {
			unknown = name
			continue
		}
		v.add(container{pod: samplestore.Key{Name: name}}, s)
	}
	v.complete = true
	switch {
	case len(result.Samples) == 0:
		e.problem(path, v1alpha1.RuleFailing, ReasonNoFigures, "the source has no series for it: "+q.Nodes)
	case len(v.by) == 0:
		e.problem(path, v1alpha1.RuleFailing, ReasonNoFigures, fmt.Sprintf("no value of the label %s is a node's name, such as %q: choose the label that holds it in resources.overrides", q.NodeLabel, text.Printable(unknown, 100)))
	default:
		e.reportInvalid(path, v)
	}
}

func (e *evaluation) containers(ctx context.Context, source query.Source, q *rules.ResourceQuery, v *values, path string) {
	run := func(namespace, expression string) bool {
		result, err := source.Evaluate(ctx, query.Query{Expression: expression}, e.at)
		if err != nil {
			e.failed(path, err)
			return false
		}
		for _, s := range result.Samples {
			in := cmp.Or(namespace, s.Labels[q.NamespaceLabel])
			c := container{pod: samplestore.Key{Namespace: in, Name: s.Labels[q.PodLabel]}, name: s.Labels[q.ContainerLabel]}
			if c.inPod() && e.store.Pods.Known(c.pod) {
				v.add(c, s)
			}
		}
		return true
	}
	if q.Containers != "" {
		v.complete = run("", q.Containers)
	} else {
		// One after another: autoscalers' queries share the source.
		v.complete = true
		for _, namespace := range e.store.Pods.Namespaces() {
			expression, err := q.ContainersIn(namespace)
			if err != nil {
				e.problem(path, v1alpha1.RuleWarning, ReasonUnusableFigures, fmt.Sprintf("namespace %s: %s", namespace, err))
				continue
			}
			if v.complete = run(namespace, expression); !v.complete {
				break
			}
		}
	}
	switch {
	case !v.complete:
	case len(v.by) == 0:
		e.problem(path, v1alpha1.RuleFailing, ReasonNoFigures, fmt.Sprintf("the source has no series for it whose labels %s, %s and %s name a container of a pod of this cluster", q.NamespaceLabel, q.PodLabel, q.ContainerLabel))
	default:
		e.reportInvalid(path, v)
	}
}

func (e *evaluation) failed(path string, err error) {
	reason, message := ReasonNoFigures, err.Error()
	if f := (*query.Failure)(nil); errors.As(err, &f) {
		reason, message = string(f.Reason), f.Error()
		e.mu.Lock()
		e.hold = max(e.hold, f.RetryAfter)
		e.mu.Unlock()
	}
	e.problem(path, v1alpha1.RuleFailing, reason, message)
}

func (e *evaluation) reportInvalid(path string, v *values) {
	if v.invalid > 0 {
		e.problem(path, v1alpha1.RuleWarning, ReasonUnusableFigures, fmt.Sprintf("%d series cannot be used, such as that of %s: %s", v.invalid, v.example, v.why))
	}
}

// publish stores points of the nodes and pods of which both resources are known.
func (e *evaluation) publish() {
	if e.cpuNodes.complete && e.memoryNodes.complete {
		var updates []samplestore.Update
		for c, memory := range e.memoryNodes.by {
			if cpu := e.cpuNodes.by[c]; cpu.valid() && memory.valid() {
				p := &samplestore.Point{Window: e.queries.Window, Node: c.pod.Name}
				addUsage(p, "", cpu, memory)
				updates = append(updates, samplestore.Update{Key: c.pod, Point: p})
			}
		}
		e.report.Nodes = len(updates)
		e.store.Nodes.Publish(updates)
		e.noteNewest(updates)
	}
	if e.cpuContainers.complete && e.memoryContainers.complete {
		updates := e.pods()
		e.report.Pods = len(updates)
		e.store.Pods.Publish(updates)
		e.noteNewest(updates)
	}
	slices.SortStableFunc(e.report.Problems, func(a, b v1alpha1.RuleHealth) int { return cmp.Compare(a.Path, b.Path) })
}

func (e *evaluation) noteNewest(updates []samplestore.Update) {
	for _, u := range updates {
		if at := u.Point.Newest.AsTime(); at.After(e.report.Newest.Time) {
			e.report.Newest = metav1.Time{Time: at}
		}
	}
}

// pods returns points of the pods all of whose containers are known.
func (e *evaluation) pods() []samplestore.Update {
	points := make(map[samplestore.Key]*samplestore.Point, len(e.memoryContainers.by)) // nil if a container is unknown
	for c, memory := range e.memoryContainers.by {
		p, seen := points[c.pod]
		if seen && p == nil {
			continue
		}
		cpu := e.cpuContainers.by[c]
		switch {
		case memory.zero() && (cpu.zero() || cpu.time.IsZero()):
			continue // it has no process, as with a kubelet's zeros
		case !cpu.valid() || !memory.valid():
			points[c.pod] = nil
			continue
		case !seen:
			p = &samplestore.Point{Window: e.queries.Window}
			points[c.pod] = p
		}
		addUsage(p, c.name, cpu, memory)
	}
	updates, withoutMemory := make([]samplestore.Update, 0, len(points)), 0
	for pod, p := range points {
		if p == nil {
			continue
		}
		// As of kubelets, a container without memory only counts beside one with memory.
		if !slices.ContainsFunc(p.Usages, func(u samplestore.Usage) bool { return u.Memory > 0 }) {
			withoutMemory++
			continue
		}
		slices.SortFunc(p.Usages, func(a, b samplestore.Usage) int { return strings.Compare(a.Name, b.Name) })
		if known := e.store.Pods.Get(pod); known != nil {
			// A pod does not move: what a kubelet reported before still holds.
			p.Node, p.Started = known.Point.Node, known.Point.Started
		}
		updates = append(updates, samplestore.Update{Key: pod, Point: p})
	}
	if withoutMemory > 0 {
		e.problem(".memory.containerQuery", v1alpha1.RuleWarning, ReasonUnusableFigures, fmt.Sprintf("pods that use CPU while all their containers have 0 bytes: %d", withoutMemory))
	}
	return updates
}

// addUsage adds a container's values to a point.
func addUsage(p *samplestore.Point, name string, cpu, memory value) {
	for _, t := range [...]time.Time{cpu.time, memory.time} {
		at := samplestore.TimeOf(t)
		if p.Time == 0 || at < p.Time {
			p.Time = at
		}
		p.Newest = max(p.Newest, at)
	}
	p.Usages = append(p.Usages, samplestore.Usage{Name: name, CPU: cpu.value, Memory: memory.value})
}
