// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
)

const (
	aggregatedSubject = "/apis"
	groupSubject      = "/apis/" + group
	discoveryRemedy   = "discovery follows APIServices within seconds: see apiservice-registered, apiservice-stale and apiservice-available"
)

// discoveryAggregated reads the document that clients choose a version by. It is
// rendered elsewhere than /apis/GROUP, and changes at another moment.
func discoveryAggregated(ctx context.Context, l *look) []Result {
	found, err := aggregation.Aggregated(ctx, l.cluster, group)
	if err != nil {
		return []Result{l.unread(aggregatedSubject, err, "this is kube-apiserver's own document: is it healthy? kubectl get --raw /readyz?verbose")}
	}
	if len(found.Stale) > 0 {
		return []Result{fail(aggregatedSubject, fmt.Sprintf("lists %s as stale: kube-apiserver did not get its resources from the implementation", listed(found.Stale)), discoveryRemedy)}
	}
	return []Result{l.compare(aggregatedSubject, "lists as current:", found.Current)}
}

// discoveryGroup reads the document of the group (KEP-5207, upgrade).
func discoveryGroup(ctx context.Context, l *look) []Result {
	found, err := aggregation.GroupDocument(ctx, l.cluster, group)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return []Result{fail(groupSubject, "the group is not in discovery", discoveryRemedy)}
		}
		return []Result{l.unread(groupSubject, err, discoveryRemedy)}
	}
	return []Result{l.compare(groupSubject, "lists:", found.Versions)}
}

func (l *look) compare(subject, does string, found []string) Result {
	if slices.Equal(found, l.expected) {
		return pass(subject, "%s %s", does, listed(found))
	}
	return fail(subject, fmt.Sprintf("%s %s, expected: %s", does, listed(found), listed(l.expected)), discoveryRemedy)
}

// discoveryPreferred: clients without an opinion of their own use this version.
func discoveryPreferred(ctx context.Context, l *look) []Result {
	found, err := aggregation.GroupDocument(ctx, l.cluster, group)
	switch {
	case apierrors.IsNotFound(err):
		return []Result{skip(groupSubject, "the group is not in discovery, see discovery-group")}
	case err != nil:
		return []Result{skip(groupSubject, "could not be read, see discovery-group")}
	case !slices.Equal(found.Versions, l.expected):
		return []Result{skip(groupSubject, "prefers %s, and lists other versions than expected, see discovery-group", found.Preferred)}
	case found.Preferred != l.expected[0]:
		return []Result{fail(groupSubject, fmt.Sprintf("prefers %s, expected: %s", found.Preferred, l.expected[0]),
			"spec.versionPriority of the better version's APIService must be the higher one")}
	}
	return []Result{pass(groupSubject, "prefers %s", found.Preferred)}
}

// resourcesServed asks the implementation itself, through kube-apiserver.
func resourcesServed(ctx context.Context, l *look) []Result {
	return l.each(func(version string, r *aggregation.Registration) Result {
		subject := groupSubject + "/" + version
		names, err := aggregation.Resources(ctx, l.cluster, group, version)
		if err != nil {
			return l.unread(subject, err, unservedRemedy(r, err))
		}
		for _, want := range []string{"nodes", "pods"} {
			if !slices.Contains(names, want) {
				return fail(subject, fmt.Sprintf("serves %s, not %s", listed(names), want), "the implementation is not complete: does it start?")
			}
		}
		return pass(subject, "serves %s", strings.Join(names, ", "))
	})
}

// unservedRemedy takes an APIService out only where nothing serves it: while its
// implementation is merely down, that would cost what comes back by itself.
func unservedRemedy(r *aggregation.Registration, err error) string {
	switch {
	case !apierrors.IsNotFound(err):
		return "see apiservice-available"
	case r.Backend != "":
		return "kubectl metrics status " + r.Backend + " tells which pods serve which versions"
	}
	return fmt.Sprintf("%s must serve this version, or its APIService must go: kubectl delete apiservice %s", r.Service, r.Name)
}
