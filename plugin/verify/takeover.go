// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
)

// nothingLost tells, of each APIService of someone else that a MetricsBackend names, what its operator found: what the
// serving pods do not answer, and who applies it.
func nothingLost(ctx context.Context, snap *snapshot) []Result {
	registrations, err := aggregation.Registrations(ctx, snap.cluster, aggregation.Groups()...)
	if err != nil {
		return []Result{snap.requestFailed("APIServices", err, "")}
	}
	var results []Result
	for i := range registrations {
		r := &registrations[i]
		for j := range snap.backends {
			backend := &snap.backends[j]
			if r.Backend == "" && backend.Spec.Existing == nil && slices.Contains(versionsOf(&backend.Spec, r.Group), r.Version) {
				results = append(results, takeover(backend, r))
			}
		}
	}
	if len(results) == 0 {
		return []Result{skip("APIServices", "no MetricsBackend names a version that someone else serves")}
	}
	return results
}

func takeover(backend *v1alpha1.MetricsBackend, r *aggregation.Registration) Result {
	subject := r.Version + "." + r.Group
	if !meta.IsStatusConditionTrue(backend.Status.Conditions, v1alpha1.ConditionServingReady) {
		return fail(subject, "not compared with "+r.Service+": the serving pods are not ready", "the status tells what they wait for").withCommand(statusCommandOf(backend.Name))
	}
	i := slices.IndexFunc(backend.Status.APIServices, func(s v1alpha1.APIServiceStatus) bool { return s.Name == subject })
	if i < 0 {
		return fail(subject, "the operator has not looked at it yet", operatorRuns)
	}
	status := backend.Status.APIServices[i]
	different := "the serving pods do not answer as " + r.Service + " does: " + strings.Join(status.Differences, "; ")
	switch {
	case strings.Contains(status.Message, v1alpha1.WritesBack):
		return fail(subject, status.Message, "it is not taken over, whatever adoption says")
	case len(status.Differences) > 0 && r.Group != aggregation.GroupResourceMetrics:
		return fail(subject, different, "add sources and rules for it, or leave the version to "+r.Service)
	case len(status.Differences) > 0:
		return warn(subject, different, "look why, with kubectl metrics-backend status")
	case status.AppliedBy != "":
		return warn(subject, "the serving pods answer what "+r.Service+" does; but it is applied by "+status.AppliedBy+", whose next change takes it back",
			"stop that before the takeover: docs/concepts/lifecycle.md#who-else-writes-the-apiservice")
	}
	return pass(subject, "the serving pods answer what %s does", r.Service)
}
