// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
)

// otherAPIs checks the versions of custom.metrics.k8s.io and external.metrics.k8s.io that
// MetricsBackends desire or own. For other owners' there are no expectations, and --expect is
// for metrics.k8s.io only.
func otherAPIs(ctx context.Context, snap *snapshot) []Result {
	var results []Result
	for _, group := range []string{custom_metrics.GroupName, external_metrics.GroupName} {
		wanted := snap.desiredVersions(group)
		registrations, err := aggregation.Registrations(ctx, snap.cluster, group)
		if err != nil {
			return append(results, snap.requestFailed("/apis/"+group, err, ""))
		}
		byVersion := map[string]*aggregation.Registration{}
		for i := range registrations {
			r := &registrations[i]
			byVersion[r.Version] = r
			if r.Backend != "" {
				wanted = append(wanted, r.Version)
			}
		}
		if wanted = sorted(wanted); len(wanted) == 0 {
			continue
		}
		discovery, err := aggregation.Aggregated(ctx, snap.cluster, group)
		if err != nil {
			// discovery-aggregated reports the error.
			discovery = nil
		}
		for _, version := range wanted {
			results = append(results, snap.checkOtherAPI(ctx, group, version, byVersion[version], discovery))
		}
	}
	return results
}

// checkOtherAPI checks that a version is registered, available, in discovery, and answers.
func (snap *snapshot) checkOtherAPI(ctx context.Context, group, version string, r *aggregation.Registration, discovery *aggregation.Discovery) Result {
	subject := version + "." + group
	switch {
	case r == nil:
		return fail(subject, "there is no such APIService, and the spec of a MetricsBackend has this version: requests get 404",
			"kubectl metrics status tells what it waits for")
	case r.Deleting:
		return fail(subject, "is being deleted", "kubectl describe apiservice "+subject+": which finalizer holds it?")
	case r.Service == "":
		return fail(subject, "points to kube-apiserver itself, which does not serve it",
			"kubectl delete apiservice "+subject+", and let the operator register it again")
	case !r.Available:
		return fail(subject, fmt.Sprintf("not Available, %s: %s", r.Reason, r.Message),
			fmt.Sprintf("are the pods behind %s ready, and can kube-apiserver reach them? Namespaces cannot be deleted meanwhile", r.Service))
	case discovery != nil && !slices.Contains(discovery.Current, version):
		state := "does not list it"
		if slices.Contains(discovery.Stale, version) {
			state = "lists it as stale"
		}
		return fail(subject, "aggregated discovery "+state+": autoscalers do not find it", "discovery follows APIServices within seconds: look again")
	}
	names, err := aggregation.Resources(ctx, snap.cluster, group, version)
	if err != nil {
		remedy := "the log of the pods behind " + r.Service + " tells why"
		if apierrors.IsNotFound(err) {
			remedy = unservedRemedy(r, err)
		}
		return snap.requestFailed(subject, err, remedy)
	}
	return pass(subject, "Available%s; metrics in discovery: %d", owner(r), len(names))
}

// desiredVersions returns the versions of a group in specs of MetricsBackends; with
// spec.existing, only those that are served.
func (snap *snapshot) desiredVersions(group string) []string {
	var wanted []string
	for i := range snap.backends {
		backend := &snap.backends[i]
		if backend.DeletionTimestamp != nil {
			continue
		}
		spec := backend.Spec.DeepCopy()
		v1alpha1.SetDefaults(spec)
		for _, version := range versionsOf(spec, group) {
			if !notServedByExisting(backend, version+"."+group) {
				wanted = append(wanted, version)
			}
		}
	}
	return wanted
}

func versionsOf(spec *v1alpha1.MetricsBackendSpec, group string) []string {
	var versions []string
	switch {
	case group == custom_metrics.GroupName && spec.CustomMetrics != nil:
		for _, version := range spec.CustomMetrics.Versions {
			versions = append(versions, string(version))
		}
	case group == external_metrics.GroupName && spec.ExternalMetrics != nil:
		for _, version := range spec.ExternalMetrics.Versions {
			versions = append(versions, string(version))
		}
	}
	return versions
}
