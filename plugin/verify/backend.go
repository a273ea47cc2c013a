// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

// advisory are conditions about the backend's environment, such as nodes that are down, rules
// without series, and clients of old versions.
var advisory = []string{v1alpha1.ConditionSourcesHealthy, v1alpha1.ConditionRulesReady, v1alpha1.ConditionConsumersCompatible}

// backendConditions checks all conditions of all MetricsBackends.
func backendConditions(_ context.Context, snap *snapshot) []Result {
	return snap.eachBackend(skip("MetricsBackends", "there is none: someone else serves %s", group), conditionsOf)
}

// eachBackend runs a check for each MetricsBackend, and returns none if there is no MetricsBackend.
func (snap *snapshot) eachBackend(none Result, run func(*v1alpha1.MetricsBackend) []Result) []Result {
	switch {
	case snap.backendsDenied != nil:
		return []Result{snap.requestFailed("MetricsBackends", snap.backendsDenied, "")}
	case len(snap.backends) == 0:
		return []Result{none}
	}
	var results []Result
	for i := range snap.backends {
		results = append(results, run(&snap.backends[i])...)
	}
	return results
}

const (
	operatorRuns = "does the operator run?"
	// statusCommand is the command that shows all MetricsBackends.
	statusCommand = "kubectl metrics-backend status"
)

// statusCommandOf returns the command that shows a MetricsBackend, or "" without its name.
func statusCommandOf(backend string) string {
	if backend == "" {
		return ""
	}
	return statusCommand + " " + backend
}

func conditionsOf(backend *v1alpha1.MetricsBackend) []Result {
	subject := "metricsbackend/" + backend.Name
	if backend.DeletionTimestamp != nil {
		return []Result{fail(subject, "is being deleted", "wait until it is gone").withCommand("kubectl wait --for=delete " + subject + " --timeout=5m")}
	}
	if len(backend.Status.Conditions) == 0 {
		return []Result{fail(subject, "has no conditions", operatorRuns).withCommand(connection.OperatorPods)}
	}
	if seen := backend.Status.ObservedGeneration; seen < backend.Generation {
		return []Result{fail(subject, fmt.Sprintf("the operator has not looked at generation %d of the spec yet, only at %d", backend.Generation, seen),
			"wait some seconds; "+operatorRuns).withCommand(connection.OperatorPods)}
	}
	var results []Result
	var good []string
	for _, c := range backend.Status.Conditions {
		abnormal := c.Type == v1alpha1.ConditionReconciling || c.Type == v1alpha1.ConditionStalled
		if (c.Status == metav1.ConditionTrue) != abnormal {
			good = append(good, c.Type)
			continue
		}
		// Ready has the same message.
		if abnormal || c.Reason == v1alpha1.ReasonNotApplicable {
			continue
		}
		result := fail(subject, fmt.Sprintf("%s is %s, %s: %s", c.Type, c.Status, c.Reason, c.Message),
			"docs/reference/conditions.md explains each reason").withCommand(statusCommandOf(backend.Name))
		// Ready stays True with these.
		if slices.Contains(advisory, c.Type) || c.Reason == v1alpha1.ReasonCertificateExpiring {
			result.Outcome = Warn
		}
		results = append(results, result)
	}
	for _, r := range backend.Status.Rules {
		if r.State == v1alpha1.RuleWarning && (r.Reason == v1alpha1.ReasonInvalidName || r.Reason == v1alpha1.ReasonOmittedFromDiscovery) {
			results = append(results, warn(subject, fmt.Sprintf("%s leaves metrics out, %s: %s", r.Path, r.Reason, r.Message), "docs/reference/rules.md explains each reason"))
		}
	}
	failed := func(r Result) bool { return r.Outcome == Fail }
	// Ready repeats the message of the condition that is the cause.
	ready := func(r Result) bool { return strings.HasPrefix(r.Message, v1alpha1.ConditionReady+" ") }
	if others := slices.DeleteFunc(slices.Clone(results), ready); slices.ContainsFunc(others, failed) {
		results = others
	}
	if !slices.ContainsFunc(results, failed) {
		results = append(results, pass(subject, "%s", strings.Join(good, ", ")))
	}
	return results
}

// servingReachable requests /readyz of each MetricsBackend's pods through kube-apiserver's
// own proxy. kube-apiserver takes the same path through the network when it forwards
// requests for metrics.
func servingReachable(ctx context.Context, snap *snapshot) []Result {
	none := fail("MetricsBackends", "there is none", "create one: its pods start, and by default nothing is taken over")
	return snap.eachBackend(none, func(b *v1alpha1.MetricsBackend) []Result { return []Result{reachable(ctx, snap, b)} })
}

func reachable(ctx context.Context, snap *snapshot, backend *v1alpha1.MetricsBackend) Result {
	subject := "metricsbackend/" + backend.Name
	serving := backend.Status.Serving
	switch {
	case backend.Spec.Existing != nil:
		return skip(subject, "spec.existing names an implementation that someone else runs")
	case serving == nil || serving.ReadyReplicas == 0:
		return fail(subject, "it has no ready pod", "the status tells what they wait for").withCommand(statusCommandOf(backend.Name))
	}
	spec := backend.Spec.DeepCopy()
	v1alpha1.SetDefaults(spec)
	service := "metrics-serving-" + backend.Name
	path := fmt.Sprintf("/api/v1/namespaces/%s/services/https:%s:https/proxy/readyz", serving.Namespace, service)
	if _, err := snap.cluster.Get(ctx, path, "*/*"); err != nil {
		if connection.IsDenied(err) {
			return snap.requestFailed(subject, err, "")
		}
		return fail(subject, fmt.Sprintf("kube-apiserver does not reach the pods of Service %s/%s: %v", serving.Namespace, service, err),
			v1alpha1.RequiredConnections(spec.Serving.Endpoints()))
	}
	return pass(subject, "kube-apiserver reaches the pods of Service %s/%s at %s", serving.Namespace, service, spec.Serving.Endpoints())
}
