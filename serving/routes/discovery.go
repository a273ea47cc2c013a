// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// ReasonCollision means that own metrics have names that the implementation lists, too.
const ReasonCollision = "Collision"

// lists are the metrics of discovery of both groups, as they were last.
type lists struct {
	custom   []query.ObjectMetric
	external []string
}

// ExternalMetrics implements query.ExternalMetrics: own metrics come first, then those that other implementations list,
// if a route leads to them. What stands for all metrics of an implementation that lists none is one of them.
func (r *Router) ExternalMetrics(limit int) ([]string, int) {
	own, total := r.OwnMetrics.ExternalMetrics(limit)
	r.mu.RLock()
	routes := r.external
	r.mu.RUnlock()
	if len(routes) < 2 {
		return own, total
	}
	m := merger[string]{limit: limit, name: strings.ToLower, parse: func(l metav1.APIResource) (string, string, bool) {
		metric := query.UnescapeName(l.Name)
		return metric, metric, metric != ""
	}}
	all, total := m.merge(own, total, routes, r.resources)
	return keep(r, &r.listed.external, all, m.collisions), total
}

// ObjectMetrics implements query.ObjectMetrics, as ExternalMetrics does.
func (r *Router) ObjectMetrics(limit int) ([]query.ObjectMetric, int) {
	own, total := r.OwnMetrics.ObjectMetrics(limit)
	r.mu.RLock()
	routes := r.custom
	r.mu.RUnlock()
	if len(routes) < 2 {
		return own, total
	}
	name := func(m query.ObjectMetric) string { return m.Resource.String() + "/" + m.Name }
	m := merger[query.ObjectMetric]{limit: limit, name: name, parse: func(l metav1.APIResource) (query.ObjectMetric, string, bool) {
		resource, metric, _ := strings.Cut(l.Name, "/")
		return query.ObjectMetric{Resource: schema.ParseGroupResource(resource), Namespaced: l.Namespaced, Name: metric}, metric, metric != ""
	}}
	all, total := m.merge(own, total, routes, r.resources)
	return keep(r, &r.listed.custom, all, m.collisions), total
}

// keep sets the collisions of routes, and returns the metrics that were listed last if they are the same.
func keep[M comparable](r *Router, last *[]M, all []M, collisions map[*route]collision) []M {
	r.mu.Lock()
	defer r.mu.Unlock()
	for route, found := range collisions {
		route.collision = found
	}
	if !slices.Equal(all, *last) {
		*last = all
	}
	return *last
}

// collision counts the metrics that a source lists and own metrics define, such as metric.
type collision struct {
	count  int
	metric string
}

// merger adds metrics that sources list to own ones.
type merger[M any] struct {
	limit int
	// name identifies a metric.
	name func(M) string
	// parse returns the metric of a listed resource, and its name for routes, or false if it is none.
	parse func(metav1.APIResource) (m M, metric string, ok bool)
	// collisions are those of each route.
	collisions map[*route]collision
}

// merge adds to own metrics, of which there are total, those that the sources of routes list.
func (g *merger[M]) merge(own []M, total int, routes []*route, resources func(source string) []metav1.APIResource) ([]M, int) {
	all, seen, used := slices.Clip(own), sets.New[string](), 0
	for _, m := range own {
		seen.Insert(g.name(m))
		used += query.ListCost(g.name(m))
	}
	owned := seen.Clone()
	g.collisions = map[*route]collision{}
	for _, route := range routes {
		if route.source == "" || route.problem != nil {
			continue
		}
		found := collision{}
		for _, listed := range resources(route.source) {
			m, metric, ok := g.parse(listed)
			switch name := g.name(m); {
			case !ok || !route.matchesName(metric):
			case owned.Has(name):
				if found.count++; found.count == 1 {
					found.metric = name
				}
			case !seen.Has(name):
				seen.Insert(name)
				total++
				if used += query.ListCost(name); used <= g.limit {
					all = append(all, m)
				}
			}
		}
		g.collisions[route] = found
	}
	return all, total
}

// collisionProblem returns the warning about metrics that own metrics and those of the route's source have in common;
// nil if there are none.
func (r *route) collisionProblem() *v1alpha1.RuleHealth {
	if r.collision.count == 0 {
		return nil
	}
	return &v1alpha1.RuleHealth{Path: r.path, State: v1alpha1.RuleWarning, Reason: ReasonCollision, Message: fmt.Sprintf(
		"rules or declared metrics define %d metrics that the source %q lists, too, such as %s: the route that comes first counts (explain says which)", r.collision.count, r.source, r.collision.metric)}
}
