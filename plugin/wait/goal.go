// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

// none is the value of versions= for no version, as after an uninstall.
const none = "none"

// goal is a condition of a MetricsBackend, or else exactly these versions of an API group.
type goal struct {
	condition string
	status    metav1.ConditionStatus
	group     string
	versions  []string
}

// parseGoal reads ready, condition=NAME, condition=NAME=STATUS or versions=V,V.
func parseGoal(text string) (goal, error) {
	kind, value, hasValue := strings.Cut(text, "=")
	switch {
	case strings.EqualFold(text, "ready"):
		return goal{condition: v1alpha1.ConditionReady, status: metav1.ConditionTrue}, nil
	case kind == "condition" && value != "":
		name, status, hasStatus := strings.Cut(value, "=")
		if !hasStatus {
			status = string(metav1.ConditionTrue)
		}
		for _, known := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			if name != "" && strings.EqualFold(status, string(known)) {
				return goal{condition: name, status: known}, nil
			}
		}
	case kind == "versions" && hasValue:
		return parseVersions(text, value)
	}
	return goal{}, fmt.Errorf("--for %q: must be ready, condition=NAME, condition=NAME=STATUS or versions=VERSION,VERSION", text)
}

// parseVersions reads versions of one group, metrics.k8s.io where none is named, or none.
func parseVersions(text, value string) (goal, error) {
	var g goal
	for _, written := range strings.Split(value, ",") {
		version, group, named := strings.Cut(strings.TrimSpace(written), ".")
		if !named {
			group = aggregation.GroupResourceMetrics
		}
		switch {
		case !slices.Contains(aggregation.Groups(), group):
			return goal{}, fmt.Errorf("--for %q: %q is no group of metrics; there are %s", text, group, strings.Join(aggregation.Groups(), ", "))
		case g.group != "" && g.group != group:
			return goal{}, fmt.Errorf("--for %q: wait for the versions of %s and of %s one after the other", text, g.group, group)
		case version == none && strings.TrimSpace(written) == strings.TrimSpace(value):
			return goal{group: group}, nil
		case !aggregation.IsVersion(version):
			return goal{}, fmt.Errorf("--for %q: %q is no version; write versions=v1,v1beta1, or versions=none", text, version)
		}
		g.group, g.versions = group, append(g.versions, version)
	}
	slices.SortFunc(g.versions, aggregation.CompareVersions)
	g.versions = slices.Compact(g.versions)
	return g, nil
}

// ofBackend reports whether the goal is a condition.
func (g goal) ofBackend() bool { return g.condition != "" }

// String returns the object of "waiting for …".
func (g goal) String() string {
	if g.ofBackend() {
		return fmt.Sprintf("%s=%s", g.condition, g.status)
	}
	return g.group + " with " + g.listed()
}

func (g goal) listed() string {
	if len(g.versions) == 0 {
		return "no version"
	}
	return strings.Join(g.versions, ", ")
}

// reached returns the sentence to print once the goal is reached.
func (g goal) reached(backend string) string {
	switch {
	case g.ofBackend():
		return fmt.Sprintf("metricsbackend/%s has %s", backend, g)
	case len(g.versions) == 0:
		return g.group + " is gone, from discovery too"
	}
	return fmt.Sprintf("%s: %s, and no other version, available and in discovery", g.group, g.listed())
}

// state is the current state of the cluster.
type state struct {
	// backend may be nil.
	backend *v1alpha1.MetricsBackend
	// registrations are the APIServices of the group.
	registrations []aggregation.Registration
}

// check reports whether the goal is reached, or what is missing. It reads discovery only if
// the APIServices match the goal.
func (g goal) check(ctx context.Context, cluster *connection.Cluster, current state) (bool, string, error) {
	if g.ofBackend() {
		done, missing := g.checkCondition(current.backend)
		return done, missing, nil
	}
	for _, r := range current.registrations {
		switch {
		case !slices.Contains(g.versions, r.Version):
			return false, withReason(r.Name+" is registered"+pointsTo(r), current.backend), nil
		case r.Deleting:
			return false, r.Name + " is being deleted", nil
		case !r.Available:
			return false, fmt.Sprintf("%s is not available, %s: %s", r.Name, r.Reason, r.Message), nil
		}
	}
	for _, version := range g.versions {
		if !slices.ContainsFunc(current.registrations, func(r aggregation.Registration) bool { return r.Version == version }) {
			return false, withReason(version+"."+g.group+" is not registered", current.backend), nil
		}
	}
	// Clients use this document, which follows APIServices with a delay.
	found, err := aggregation.Aggregated(ctx, cluster, g.group)
	if err != nil {
		return false, "", err
	}
	for _, version := range slices.Concat(found.Current, found.Stale) {
		if !slices.Contains(g.versions, version) {
			// A stale version also blocks the deletion of namespaces.
			return false, fmt.Sprintf("%s.%s is deleted, and still in discovery%s", version, g.group, asStale(found, version)), nil
		}
	}
	for _, version := range g.versions {
		if !slices.Contains(found.Current, version) {
			return false, fmt.Sprintf("%s.%s is available, and not in discovery yet%s", version, g.group, asStale(found, version)), nil
		}
	}
	return true, "", nil
}

func (g goal) checkCondition(backend *v1alpha1.MetricsBackend) (bool, string) {
	if backend.Status.ObservedGeneration < backend.Generation {
		return false, fmt.Sprintf("the operator has not looked at generation %d of the spec yet", backend.Generation)
	}
	c := meta.FindStatusCondition(backend.Status.Conditions, g.condition)
	if c == nil {
		// Reconciling and Stalled only exist while they are true.
		abnormal := g.condition == v1alpha1.ConditionReconciling || g.condition == v1alpha1.ConditionStalled
		if abnormal && g.status == metav1.ConditionFalse && len(backend.Status.Conditions) > 0 {
			return true, ""
		}
		return false, "there is no such condition yet"
	}
	if c.ObservedGeneration < backend.Generation {
		return false, fmt.Sprintf("the operator has not looked at generation %d of the spec yet", backend.Generation)
	}
	if c.Status == g.status {
		return true, ""
	}
	return false, fmt.Sprintf("it is %s, %s: %s", c.Status, c.Reason, c.Message)
}

func asStale(found *aggregation.Discovery, version string) string {
	if slices.Contains(found.Stale, version) {
		return ", where it is listed as stale"
	}
	return ""
}

func pointsTo(r aggregation.Registration) string {
	if r.Service == "" {
		return ""
	}
	return " and points to " + r.Service
}

// withReason adds the message of the backend's condition Ready, unless it is True.
func withReason(what string, backend *v1alpha1.MetricsBackend) string {
	if backend == nil {
		return what
	}
	c := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status == metav1.ConditionTrue {
		return what
	}
	return fmt.Sprintf("%s; metricsbackend/%s: %s", what, backend.Name, c.Message)
}
