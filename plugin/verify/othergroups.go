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

// otherAPIs looks at the versions of custom.metrics.k8s.io and external.metrics.k8s.io
// that MetricsBackends want or keep. Others' are not judged: what they should be is not
// said anywhere. --expect speaks of metrics.k8s.io alone.
func otherAPIs(ctx context.Context, l *look) []Result {
	var results []Result
	for _, group := range []string{custom_metrics.GroupName, external_metrics.GroupName} {
		wanted := l.wantedOf(group)
		registrations, err := aggregation.Registrations(ctx, l.cluster, group)
		if err != nil {
			return append(results, l.unread("/apis/"+group, err, ""))
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
		discovery, err := aggregation.Aggregated(ctx, l.cluster, group)
		if err != nil {
			// Why not is what discovery-aggregated tells.
			discovery = nil
		}
		for _, version := range wanted {
			results = append(results, l.otherAPI(ctx, group, version, byVersion[version], discovery))
		}
	}
	return results
}

// otherAPI follows the trip of a request: registered, available, found by clients, answered.
func (l *look) otherAPI(ctx context.Context, group, version string, r *aggregation.Registration, discovery *aggregation.Discovery) Result {
	subject := version + "." + group
	switch {
	case r == nil:
		return fail(subject, "there is no such APIService, and the spec of a MetricsBackend has this version: requests get 404",
			"kubectl metrics status tells what it waits for")
	case r.Deleting:
		return fail(subject, "is being deleted", "kubectl describe apiservice "+subject+": which finalizer holds it?")
	case r.Service == "":
		return fail(subject, "leads to kube-apiserver itself, which does not serve it",
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
	names, err := aggregation.Resources(ctx, l.cluster, group, version)
	if err != nil {
		remedy := "the log of the pods behind " + r.Service + " tells why"
		if apierrors.IsNotFound(err) {
			remedy = unservedRemedy(r, err)
		}
		return l.unread(subject, err, remedy)
	}
	return pass(subject, "Available%s; metrics in discovery: %d", owner(r), len(names))
}

// wantedOf are the versions of a group that specs of MetricsBackends have, with
// spec.existing those of them that are served.
func (l *look) wantedOf(group string) []string {
	var wanted []string
	for i := range l.backends {
		backend := &l.backends[i]
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
