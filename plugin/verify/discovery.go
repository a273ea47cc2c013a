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
	// readyz is quoted for shells that expand a question mark.
	readyz = `kubectl get --raw "/readyz?verbose"`
)

// discoveryAggregated checks the document by which clients choose a version. It is not
// updated at the same time as /apis/GROUP.
func discoveryAggregated(ctx context.Context, snap *snapshot) []Result {
	found, err := aggregation.Aggregated(ctx, snap.cluster, group)
	if err != nil {
		return []Result{snap.requestFailed(aggregatedSubject, err, "this is kube-apiserver's own document: is it healthy?").withCommand(readyz)}
	}
	if len(found.Stale) > 0 {
		return []Result{fail(aggregatedSubject, fmt.Sprintf("lists %s as stale: kube-apiserver did not get its resources from the implementation", listed(found.Stale)), discoveryRemedy)}
	}
	return []Result{snap.compare(aggregatedSubject, "lists as current:", found.Current)}
}

// discoveryGroup checks the document of the group (KEP-5207, upgrade).
func discoveryGroup(ctx context.Context, snap *snapshot) []Result {
	found, _, err := aggregation.GroupDocument(ctx, snap.cluster, group)
	switch {
	case apierrors.IsNotFound(err) && len(snap.expected) == 0:
		return []Result{pass(groupSubject, "is not in discovery")}
	case apierrors.IsNotFound(err):
		return []Result{fail(groupSubject, "the group is not in discovery", discoveryRemedy)}
	case err != nil:
		return []Result{snap.requestFailed(groupSubject, err, discoveryRemedy)}
	}
	return []Result{snap.compare(groupSubject, "lists:", found)}
}

func (snap *snapshot) compare(subject, does string, found []string) Result {
	if slices.Equal(found, snap.expected) {
		return pass(subject, "%s %s", does, listed(found))
	}
	return fail(subject, fmt.Sprintf("%s %s, expected: %s", does, listed(found), listed(snap.expected)), discoveryRemedy)
}

// discoveryPreferred checks the version that clients use by default.
func discoveryPreferred(ctx context.Context, snap *snapshot) []Result {
	found, preferred, err := aggregation.GroupDocument(ctx, snap.cluster, group)
	switch {
	case apierrors.IsNotFound(err):
		return []Result{skip(groupSubject, "the group is not in discovery, see discovery-group")}
	case err != nil:
		return []Result{skip(groupSubject, "could not be read, see discovery-group")}
	case !slices.Equal(found, snap.expected):
		return []Result{skip(groupSubject, "prefers %s, and lists other versions than expected, see discovery-group", preferred)}
	case preferred != snap.expected[0]:
		return []Result{fail(groupSubject, fmt.Sprintf("prefers %s, expected: %s", preferred, snap.expected[0]),
			"spec.versionPriority of the better version's APIService must be the higher one")}
	}
	return []Result{pass(groupSubject, "prefers %s", preferred)}
}

// resourcesServed checks the implementation's own discovery.
func resourcesServed(ctx context.Context, snap *snapshot) []Result {
	return snap.each(func(r *aggregation.Registration) Result {
		subject := groupSubject + "/" + r.Version
		names, err := aggregation.Resources(ctx, snap.cluster, group, r.Version)
		if err != nil {
			remedy, command := unservedRemedy(r, err)
			return snap.requestFailed(subject, err, remedy).withCommand(command)
		}
		for _, want := range []string{"nodes", "pods"} {
			if !slices.Contains(names, want) {
				return fail(subject, fmt.Sprintf("serves %s, not %s", listed(names), want), "the implementation is not complete: does it start?")
			}
		}
		return pass(subject, "serves %s", strings.Join(names, ", "))
	})
}

// unservedRemedy returns the remedy, and the next command, for a version that does not answer. It suggests
// the deletion of an APIService only if its version does not exist, not while the implementation is
// down.
func unservedRemedy(r *aggregation.Registration, err error) (remedy, command string) {
	switch {
	case !apierrors.IsNotFound(err):
		return "see apiservice-available", ""
	case r.Backend != "":
		return "the status tells which pods serve which versions", statusCommandOf(r.Backend)
	}
	return r.Service + " must serve this version, or its APIService must go", deleteCommand(r)
}
