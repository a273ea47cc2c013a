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

// goal is a condition of a MetricsBackend, or a source of it that is healthy, or a group that no MetricsBackend serves, or
// else exactly these versions of an API group.
type goal struct {
	condition string
	status    metav1.ConditionStatus
	source    string
	group     string
	released  bool
	versions  []string
}

// parseGoal reads ready, condition=NAME, condition=NAME=STATUS, source=NAME, released=GROUP or versions=V,V.
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
	case kind == "source" && value != "":
		return goal{source: value}, nil
	case kind == "released" && slices.Contains(aggregation.Groups(), value):
		return goal{group: value, released: true}, nil
	case kind == "versions" && hasValue:
		return parseVersions(text, value)
	}
	return goal{}, fmt.Errorf("--for %q: must be ready, condition=NAME, condition=NAME=STATUS, source=NAME, released=GROUP or versions=VERSION,VERSION", text)
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

// ofBackend reports whether the goal is a condition or a source.
func (g goal) ofBackend() bool { return g.condition != "" || g.source != "" }

// String returns the object of "waiting for …".
func (g goal) String() string {
	switch {
	case g.source != "":
		return "a healthy source " + g.source
	case g.ofBackend():
		return fmt.Sprintf("%s=%s", g.condition, g.status)
	case g.released:
		return "the release of " + g.group
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
	case g.released:
		return "no MetricsBackend serves " + g.group
	case len(g.versions) == 0:
		return g.group + " is gone, from discovery too"
	}
	return fmt.Sprintf("%s: %s, and no other version, available and in discovery", g.group, g.listed())
}

// checkVersions returns what is missing, or "" if the versions are there, or the group is released. It reads discovery only if the
// APIServices match the goal. The backend, which may say why, may be nil.
func (g goal) checkVersions(ctx context.Context, cluster *connection.Cluster, backend *v1alpha1.MetricsBackend) (string, error) {
	registrations, err := aggregation.Registrations(ctx, cluster, g.group)
	if err != nil {
		return "", err
	}
	if g.released {
		for _, r := range registrations {
			if r.Backend != "" {
				return withReason(fmt.Sprintf("%s is MetricsBackend %s's", r.Name, r.Backend), backend), nil
			}
		}
		if backend != nil && (backend.DeletionTimestamp != nil || slices.Contains(backend.RetainedGroups(), g.group)) {
			return fmt.Sprintf("the pods of MetricsBackend %s answer until every kube-apiserver knows that", backend.Name), nil
		}
		return "", nil
	}
	for _, r := range registrations {
		switch {
		case !slices.Contains(g.versions, r.Version):
			return withReason(r.Name+" is registered"+pointsTo(r), backend), nil
		case r.Deleting:
			return r.Name + " is being deleted", nil
		case !r.Available:
			return fmt.Sprintf("%s is not available, %s: %s", r.Name, r.Reason, r.Message), nil
		}
	}
	for _, version := range g.versions {
		if aggregation.Find(registrations, version) == nil {
			return withReason(version+"."+g.group+" is not registered", backend), nil
		}
	}
	// Clients use this document, which follows APIServices with a delay.
	found, err := aggregation.Aggregated(ctx, cluster, g.group)
	if err != nil {
		return "", err
	}
	for _, version := range slices.Concat(found.Current, found.Stale) {
		if !slices.Contains(g.versions, version) {
			// A stale version also blocks the deletion of namespaces.
			return fmt.Sprintf("%s.%s is deleted, and still in discovery%s", version, g.group, asStale(found, version)), nil
		}
	}
	for _, version := range g.versions {
		if !slices.Contains(found.Current, version) {
			return fmt.Sprintf("%s.%s is available, and not in discovery yet%s", version, g.group, asStale(found, version)), nil
		}
	}
	return "", nil
}

// checkCondition returns what is missing, or "" if the backend has the condition.
func (g goal) checkCondition(backend *v1alpha1.MetricsBackend) string {
	c := meta.FindStatusCondition(backend.Status.Conditions, g.condition)
	// Reconciling and Stalled only exist while they are true.
	abnormal := g.condition == v1alpha1.ConditionReconciling || g.condition == v1alpha1.ConditionStalled
	switch {
	case backend.Status.ObservedGeneration < backend.Generation || c != nil && c.ObservedGeneration < backend.Generation:
		return fmt.Sprintf("the operator has not looked at generation %d of the spec yet", backend.Generation)
	case c == nil && abnormal && g.status == metav1.ConditionFalse && len(backend.Status.Conditions) > 0:
		return ""
	case c == nil:
		return "there is no such condition yet"
	case c.Status == g.status:
		return ""
	}
	return fmt.Sprintf("it is %s, %s: %s", c.Status, c.Reason, c.Message)
}

// checkSource returns what is missing, or "" if every serving pod uses the newest spec and reaches the source.
func (g goal) checkSource(backend *v1alpha1.MetricsBackend) string {
	all := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionSourcesHealthy)
	i := slices.IndexFunc(backend.Status.Sources, func(s v1alpha1.SourceStatus) bool { return s.Name == g.source })
	switch {
	case backend.Status.ObservedGeneration < backend.Generation:
		return fmt.Sprintf("the operator has not looked at generation %d of the spec yet", backend.Generation)
	case all != nil && all.Reason == v1alpha1.ReasonProgressing:
		return all.Message
	case i < 0:
		return "no serving pod has reported on it yet"
	case !backend.Status.Sources[i].Healthy:
		return fmt.Sprintf("it is not, %s: %s", backend.Status.Sources[i].Reason, backend.Status.Sources[i].Message)
	}
	return ""
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
	if backend != nil {
		if c := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
			what += fmt.Sprintf("; metricsbackend/%s: %s", backend.Name, c.Message)
		}
	}
	return what
}
