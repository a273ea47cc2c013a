// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

// servingReachable requests /readyz of each MetricsBackend's pods through kube-apiserver's
// own proxy. kube-apiserver takes the same path through the network when it forwards
// requests for metrics.
func servingReachable(ctx context.Context, snap *snapshot) []Result {
	if snap.backendsDenied != nil {
		return []Result{snap.requestFailed("MetricsBackends", snap.backendsDenied, "")}
	}
	if len(snap.backends) == 0 {
		return []Result{fail("MetricsBackends", "there is none", "create one: its pods start, and by default nothing is taken over")}
	}
	var results []Result
	for i := range snap.backends {
		results = append(results, reachable(ctx, snap, &snap.backends[i]))
	}
	return results
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
