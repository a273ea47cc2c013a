// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

// group is what is verified.
const group = aggregation.GroupResourceMetrics

// look is one look at a cluster: what several checks need is read once.
type look struct {
	cluster *connection.Cluster
	// expect and maxAge are the user's words, empty when there are none.
	expect []string
	maxAge time.Duration

	backends []v1alpha1.MetricsBackend
	// backendsRefused is set when the user may not read them.
	backendsRefused error
	registrations   []aggregation.Registration
	expected        []string
	expectedBy      string
	// samplesMaxAge is the age from which a sample is no longer fresh.
	samplesMaxAge time.Duration
}

// prepare reads what decides what to look for.
func (l *look) prepare(ctx context.Context) error {
	var err error
	if l.backends, err = l.cluster.Backends(ctx); connection.Refused(err) {
		// Whoever runs another implementation may never have heard of them.
		l.backendsRefused = err
	} else if err != nil {
		return err
	}
	if l.registrations, err = aggregation.Registrations(ctx, l.cluster, group); err != nil {
		return err
	}
	l.expected, l.expectedBy = l.expectations()
	l.samplesMaxAge = l.maxAgeOfSamples()
	return nil
}

// expectations are the versions that should be served: what the user says, else
// what MetricsBackends want, else what is registered, with v1beta1, since the HPA
// controller of Kubernetes 1.37 asks no other.
func (l *look) expectations() ([]string, string) {
	if len(l.expect) > 0 {
		return sorted(l.expect), "--expect"
	}
	var versions, names []string
	for i := range l.backends {
		backend := &l.backends[i]
		if backend.DeletionTimestamp != nil || backend.Spec.ResourceMetrics == nil {
			continue
		}
		spec := backend.Spec.DeepCopy()
		v1alpha1.SetDefaults(spec)
		for _, version := range spec.ResourceMetrics.Versions {
			if !notServedByExisting(backend, nameOf(string(version))) {
				versions = append(versions, string(version))
			}
		}
		names = append(names, backend.Name)
	}
	if len(names) > 0 {
		return sorted(versions), "spec of MetricsBackend " + strings.Join(names, ", ")
	}
	versions = []string{string(v1alpha1.ResourceMetricsV1beta1)}
	for _, r := range l.registrations {
		versions = append(versions, r.Version)
	}
	return sorted(versions), "what is registered, and v1beta1, which the HPA controller asks; --expect says otherwise"
}

// notServedByExisting: of an implementation that someone else runs, the operator
// registers those of the wanted versions that it serves, and that is all it can do.
func notServedByExisting(backend *v1alpha1.MetricsBackend, name string) bool {
	registered := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionAPIServicesRegistered)
	if backend.Spec.Existing == nil || registered == nil || registered.Status != metav1.ConditionTrue || registered.ObservedGeneration != backend.Generation {
		return false
	}
	return slices.ContainsFunc(backend.Status.APIServices, func(s v1alpha1.APIServiceStatus) bool {
		return s.Name == name && s.State == v1alpha1.APIServicePending
	})
}

func sorted(versions []string) []string {
	versions = slices.Clone(versions)
	slices.SortFunc(versions, aggregation.CompareVersions)
	return slices.Compact(versions)
}

// maxAgeOfSamples is the user's, else the longest of any MetricsBackend, else the default.
func (l *look) maxAgeOfSamples() time.Duration {
	if l.maxAge > 0 {
		return l.maxAge
	}
	specs := []v1alpha1.MetricsBackendSpec{}
	for i := range l.backends {
		specs = append(specs, *l.backends[i].Spec.DeepCopy())
	}
	if len(specs) == 0 {
		specs = append(specs, v1alpha1.MetricsBackendSpec{ResourceMetrics: &v1alpha1.ResourceMetricsSpec{}})
	}
	var longest time.Duration
	for i := range specs {
		v1alpha1.SetDefaults(&specs[i])
		if specs[i].ResourceMetrics != nil {
			longest = max(longest, specs[i].ResourceMetrics.MaxAge.Duration)
		}
	}
	return longest
}

func (l *look) registration(version string) *aggregation.Registration {
	for i := range l.registrations {
		if l.registrations[i].Version == version {
			return &l.registrations[i]
		}
	}
	return nil
}

// each runs a check for each expected version that is registered; the others have
// failed already.
func (l *look) each(run func(version string, r *aggregation.Registration) Result) []Result {
	var results []Result
	for _, version := range l.expected {
		if r := l.registration(version); r != nil {
			results = append(results, run(version, r))
		} else {
			results = append(results, skip(nameOf(version), "is not registered, see apiservice-registered"))
		}
	}
	return results
}

func nameOf(version string) string { return version + "." + group }

// unread is the result of a request that failed: a missing permission is the
// user's, anything else the API's.
func (l *look) unread(subject string, err error, remedy string) Result {
	switch {
	case connection.Refused(err):
		return Result{Subject: subject, Outcome: Error, Message: err.Error(), Remedy: "run it as a user who may, or leave it out with --skip"}
	case errors.Is(err, context.DeadlineExceeded):
		return fail(subject, fmt.Sprintf("no answer within %s", l.cluster.Timeout), remedy)
	}
	return fail(subject, err.Error(), remedy)
}
