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
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// Reasons of problems that are not a source's.
const (
	// ReasonNoFigures means: the query answers nothing that can be used.
	ReasonNoFigures = "NoFigures"
	// ReasonUnusableFigures means: some of the answer cannot be used.
	ReasonUnusableFigures = "UnusableFigures"
)

// round is one evaluation of all queries. Each has its figures, so that they are filled
// without locks.
type round struct {
	queries *rules.ResourceQueries
	store   *samplestore.Store
	at      time.Time

	cpuNodes, memoryNodes           figures
	cpuContainers, memoryContainers figures

	mu     sync.Mutex
	report Report
}

// rulesPath is where the rules are in the MetricsBackend.
const rulesPath = "spec.resourceMetrics.rules"

func (r *round) problem(below string, state v1alpha1.RuleState, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Problems = append(r.report.Problems, v1alpha1.RuleHealth{Path: rulesPath + below, State: state, Reason: reason, Message: message})
}

// ask evaluates the queries for the same instant, beside each other.
func (r *round) ask(ctx context.Context, source query.Source) {
	cpu, memory := &r.queries.CPU, &r.queries.Memory
	r.cpuNodes, r.memoryNodes = newFigures(nanocores), newFigures(bytes)
	r.cpuContainers, r.memoryContainers = newFigures(nanocores), newFigures(bytes)
	var asked sync.WaitGroup
	if r.queries.HasNodes() {
		asked.Go(func() { r.nodes(ctx, source, cpu, &r.cpuNodes, ".cpu.nodeQuery") })
		asked.Go(func() { r.nodes(ctx, source, memory, &r.memoryNodes, ".memory.nodeQuery") })
	}
	asked.Go(func() { r.containers(ctx, source, cpu, &r.cpuContainers, ".cpu.containerQuery") })
	asked.Go(func() { r.containers(ctx, source, memory, &r.memoryContainers, ".memory.containerQuery") })
	asked.Wait()
	slices.SortFunc(r.report.Problems, func(a, b v1alpha1.RuleHealth) int { return cmp.Compare(a.Path, b.Path) })
}

func (r *round) nodes(ctx context.Context, source query.Source, q *rules.ResourceQuery, f *figures, path string) {
	answer, err := source.Evaluate(ctx, q.Nodes, r.at)
	if err != nil {
		r.failed(path, err)
		return
	}
	unknown := ""
	for _, s := range answer.Samples {
		name := s.Labels[q.NodeLabel]
		if !r.store.Nodes.Known(samplestore.Key{Name: name}) {
			unknown = name
			continue
		}
		f.add(container{pod: samplestore.Key{Name: name}}, s)
	}
	f.answered = true
	switch {
	case len(answer.Samples) == 0:
		r.problem(path, v1alpha1.RuleFailing, ReasonNoFigures, "the source has no series for it: "+q.Nodes)
	case len(f.of) == 0:
		r.problem(path, v1alpha1.RuleFailing, ReasonNoFigures, fmt.Sprintf("no value of the label %s is a node's name, such as %q: choose the label that holds it in resources.overrides", q.NodeLabel, unknown))
	default:
		r.unusable(path, f)
	}
}

func (r *round) containers(ctx context.Context, source query.Source, q *rules.ResourceQuery, f *figures, path string) {
	take := func(namespace, expression string) bool {
		answer, err := source.Evaluate(ctx, expression, r.at)
		if err != nil {
			r.failed(path, err)
			return false
		}
		for _, s := range answer.Samples {
			in := namespace
			if in == "" {
				in = s.Labels[q.NamespaceLabel]
			}
			c := container{pod: samplestore.Key{Namespace: in, Name: s.Labels[q.PodLabel]}, name: s.Labels[q.ContainerLabel]}
			if c.counts() && r.store.Pods.Known(c.pod) {
				f.add(c, s)
			}
		}
		return true
	}
	if q.Containers != "" {
		f.answered = take("", q.Containers)
	} else {
		// One after the other: they are a source's to answer beside those of autoscalers.
		f.answered = true
		for _, namespace := range r.store.Pods.Namespaces() {
			expression, err := q.ContainersIn(namespace)
			if err != nil {
				r.problem(path, v1alpha1.RuleWarning, ReasonUnusableFigures, fmt.Sprintf("namespace %s: %s", namespace, err))
				continue
			}
			if f.answered = take(namespace, expression); !f.answered {
				break
			}
		}
	}
	switch {
	case !f.answered:
	case len(f.of) == 0:
		r.problem(path, v1alpha1.RuleFailing, ReasonNoFigures, fmt.Sprintf("the source has no series for it whose labels %s, %s and %s name a container of a pod of this cluster", q.NamespaceLabel, q.PodLabel, q.ContainerLabel))
	default:
		r.unusable(path, f)
	}
}

func (r *round) failed(path string, err error) {
	var f *query.Failure
	if errors.As(err, &f) {
		r.problem(path, v1alpha1.RuleFailing, string(f.Reason), f.Error())
		return
	}
	r.problem(path, v1alpha1.RuleFailing, ReasonNoFigures, err.Error())
}

func (r *round) unusable(path string, f *figures) {
	if f.bad > 0 {
		r.problem(path, v1alpha1.RuleWarning, ReasonUnusableFigures, fmt.Sprintf("%d series cannot be used, such as that of %s: %s", f.bad, f.example, f.why))
	}
}

// publish makes points of what both resources are known of.
func (r *round) publish() {
	if r.cpuNodes.answered && r.memoryNodes.answered {
		var updates []samplestore.Update
		for c, memory := range r.memoryNodes.of {
			if cpu := r.cpuNodes.of[c]; cpu.known() && memory.known() {
				p := r.point(c.pod.Name)
				take(p, "", cpu, memory)
				updates = append(updates, samplestore.Update{Key: c.pod, Point: p})
			}
		}
		r.report.Nodes = len(updates)
		r.store.Nodes.Publish(updates)
		r.newest(updates)
	}
	if r.cpuContainers.answered && r.memoryContainers.answered {
		updates := r.pods()
		r.report.Pods = len(updates)
		r.store.Pods.Publish(updates)
		r.newest(updates)
	}
}

func (r *round) newest(updates []samplestore.Update) {
	for _, u := range updates {
		if u.Point.Newest.After(r.report.Newest.Time) {
			r.report.Newest = metav1.Time{Time: u.Point.Newest}
		}
	}
}

// pods makes the points of the pods all of whose containers are known.
func (r *round) pods() []samplestore.Update {
	points := make(map[samplestore.Key]*samplestore.Point, len(r.memoryContainers.of))
	for c, memory := range r.memoryContainers.of {
		p, begun := points[c.pod]
		if begun && p == nil {
			continue
		}
		cpu := r.cpuContainers.of[c]
		switch {
		case memory.ended() && (cpu.ended() || cpu.time.IsZero()):
			// As a kubelet tells it: no process runs without either.
			continue
		case !cpu.known() || !memory.known() || memory.ended():
			points[c.pod] = nil
			continue
		case !begun:
			p = r.point("")
			points[c.pod] = p
		}
		take(p, c.name, cpu, memory)
	}
	updates := make([]samplestore.Update, 0, len(points))
	for pod, p := range points {
		if p == nil {
			continue
		}
		slices.SortFunc(p.Usages, func(a, b samplestore.Usage) int { return strings.Compare(a.Name, b.Name) })
		if known := r.store.Pods.Get(pod); known != nil {
			// The same pod as a kubelet reported before: it did not move.
			p.Node, p.Started = known.Point.Node, known.Point.Started
		}
		updates = append(updates, samplestore.Update{Key: pod, Point: p})
	}
	return updates
}

func (r *round) point(node string) *samplestore.Point {
	return &samplestore.Point{Window: r.queries.Window, Node: node}
}

// take adds a container's figures to a point.
func take(p *samplestore.Point, name string, cpu, memory figure) {
	for _, at := range [...]time.Time{cpu.time, memory.time} {
		if p.Time.IsZero() || at.Before(p.Time) {
			p.Time = at
		}
		if at.After(p.Newest) {
			p.Newest = at
		}
	}
	p.Usages = append(p.Usages, samplestore.Usage{Name: name, CPU: cpu.value, Memory: memory.value})
}
