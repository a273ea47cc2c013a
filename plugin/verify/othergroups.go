// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
		wanted, _ := snap.desiredVersions(group)
		registrations, err := aggregation.Registrations(ctx, snap.cluster, group)
		if err != nil {
			return append(results, snap.requestFailed("/apis/"+group, err, ""))
		}
		for _, r := range registrations {
			if r.Backend != "" {
				wanted = append(wanted, r.Version)
			}
		}
		if wanted = sorted(wanted); len(wanted) == 0 {
			continue
		}
		discovery, _ := aggregation.Aggregated(ctx, snap.cluster, group) // discovery-aggregated reports the error
		for _, version := range wanted {
			results = append(results, snap.checkOtherAPI(ctx, group, version, aggregation.Find(registrations, version), discovery))
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
			registrationWaits).withCommand(statusCommand)
	case r.Deleting, r.Service == "":
		return unusable(r, "operator")
	case !r.Available:
		return snap.unavailable(r)
	case discovery != nil && !slices.Contains(discovery.Current, version):
		state := "does not list it"
		if slices.Contains(discovery.Stale, version) {
			state = "lists it as stale"
		}
		return fail(subject, "aggregated discovery "+state+": autoscalers do not find it", "discovery follows APIServices within seconds: look again")
	}
	names, err := aggregation.Resources(ctx, snap.cluster, group, version)
	if err != nil {
		remedy, command := "the log of the pods behind "+r.Service+" tells why", ""
		if apierrors.IsNotFound(err) {
			remedy, command = unservedRemedy(r, err)
		}
		return snap.requestFailed(subject, err, remedy).withCommand(command)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == v1alpha1.NoMetrics || name == "namespaces/"+v1alpha1.NoMetrics })
	listed := len(names)
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(unlistedMetrics, name) })
	message := fmt.Sprintf("Available%s; metrics in discovery: %d", owner(r), len(names))
	if len(names) < listed {
		message += ", and those of an implementation that lists none"
	}
	var pairs []string
	for i, name := range names {
		other := slices.IndexFunc(names[:i], func(other string) bool { return group == external_metrics.GroupName && strings.EqualFold(other, name) })
		if other >= 0 {
			pairs = append(pairs, names[other]+" and "+name)
		}
	}
	if len(pairs) == 0 {
		return pass(subject, "%s", message)
	}
	return warn(subject, fmt.Sprintf("%s; they differ in case alone: %s", message, firstNames(pairs)),
		"autoscalers ask for external metrics in lower case: where one namespace has both, give one another name (docs/reference/external-metrics-api.md#capital-letters)")
}

// unlistedMetrics are the names in discovery that stand for all metrics of an implementation, such as KEDA's adapter and
// Datadog's cluster agent.
var unlistedMetrics = []string{"custommetrics", "externalmetrics"}
