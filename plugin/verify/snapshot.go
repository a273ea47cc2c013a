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

// group is the API group to verify.
const group = aggregation.GroupResourceMetrics

// snapshot is the state of the cluster that several checks need, read once.
type snapshot struct {
	*options
	cluster *connection.Cluster

	backends []v1alpha1.MetricsBackend
	// backendsDenied is the error if the user has no permission to read them.
	backendsDenied error
	registrations  []aggregation.Registration
	expected       []string
	expectedBy     string
	// samplesMaxAge is the maximum age of a fresh sample.
	samplesMaxAge time.Duration
}

// prepare reads the objects that determine what to check.
func (snap *snapshot) prepare(ctx context.Context) error {
	var err error
	if snap.backends, err = snap.cluster.Backends(ctx); connection.IsDenied(err) {
		// The cluster may have another implementation, and users without this permission.
		snap.backendsDenied = err
	} else if err != nil {
		return err
	}
	if snap.registrations, err = aggregation.Registrations(ctx, snap.cluster, group); err != nil {
		return err
	}
	snap.expected, snap.expectedBy = snap.expectations()
	snap.samplesMaxAge = snap.maxAgeOfSamples()
	return nil
}

// expectations returns the versions that should be served, and their origin: --expect, else the
// specs of MetricsBackends, else what others have registered; without any MetricsBackend also
// v1beta1, since the HPA controller of Kubernetes 1.37 uses no other. One that is being deleted is as none.
func (snap *snapshot) expectations() ([]string, string) {
	if len(snap.expect) > 0 {
		return sorted(snap.expect), "--expect"
	}
	versions, backends := snap.desiredVersions(group)
	if len(backends) > 0 {
		return sorted(versions), "spec of MetricsBackend " + strings.Join(backends, ", ")
	}
	for _, r := range snap.registrations {
		if owner := snap.backend(r.Backend); owner == nil || owner.DeletionTimestamp != nil {
			versions = append(versions, r.Version)
		}
	}
	if slices.ContainsFunc(snap.backends, func(b v1alpha1.MetricsBackend) bool { return b.DeletionTimestamp == nil }) {
		return sorted(versions), "what others have registered, since no MetricsBackend is to serve metrics.k8s.io; --expect says otherwise"
	}
	return sorted(append(versions, string(v1alpha1.ResourceMetricsV1beta1))),
		"what is registered, and v1beta1, which the HPA controller asks; --expect says otherwise"
}

// desiredVersions returns the versions of a group in specs of MetricsBackends, and the names of
// the backends that have the group. With spec.existing, only versions that are served count.
func (snap *snapshot) desiredVersions(group string) (versions, backends []string) {
	for i := range snap.backends {
		backend := &snap.backends[i]
		desired := versionsOf(&backend.Spec, group)
		if backend.DeletionTimestamp != nil || desired == nil {
			continue
		}
		backends = append(backends, backend.Name)
		versions = append(versions, slices.DeleteFunc(desired, func(v string) bool { return notServedByExisting(backend, v+"."+group) })...)
	}
	return versions, backends
}

// versionsOf returns the versions of a group in a spec with its defaults, or nil without the
// group.
func versionsOf(spec *v1alpha1.MetricsBackendSpec, group string) []string {
	spec = spec.DeepCopy()
	v1alpha1.SetDefaults(spec)
	return spec.Section(group).Versions
}

// notServedByExisting reports whether spec.existing does not serve a desired version: the
// operator registers only those that it serves.
func notServedByExisting(backend *v1alpha1.MetricsBackend, name string) bool {
	registered := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionAPIServicesRegistered)
	if backend.Spec.Existing == nil || registered == nil || registered.Status != metav1.ConditionTrue || registered.ObservedGeneration != backend.Generation {
		return false
	}
	return slices.ContainsFunc(backend.Status.APIServices, func(s v1alpha1.APIServiceStatus) bool {
		return s.Name == name && s.State.IsPending()
	})
}

func sorted(versions []string) []string {
	versions = slices.Clone(versions)
	slices.SortFunc(versions, aggregation.CompareVersions)
	return slices.Compact(versions)
}

// maxAgeOfSamples returns --max-age, else the longest of any MetricsBackend, else the default.
func (snap *snapshot) maxAgeOfSamples() time.Duration {
	if snap.maxAge > 0 {
		return snap.maxAge
	}
	backends := snap.backends
	if _, named := snap.desiredVersions(group); len(named) == 0 {
		backends = []v1alpha1.MetricsBackend{{Spec: v1alpha1.MetricsBackendSpec{ResourceMetrics: &v1alpha1.ResourceMetricsSpec{}}}}
	}
	var longest time.Duration
	for i := range backends {
		spec := backends[i].Spec.DeepCopy()
		v1alpha1.SetDefaults(spec)
		if spec.ResourceMetrics != nil {
			longest = max(longest, spec.ResourceMetrics.MaxSampleAge.Duration)
		}
	}
	return longest
}

// backend returns the MetricsBackend of that name, or nil if there is none or it may not
// be read.
func (snap *snapshot) backend(name string) *v1alpha1.MetricsBackend {
	for i := range snap.backends {
		if snap.backends[i].Name == name {
			return &snap.backends[i]
		}
	}
	return nil
}

// each runs a check for each expected version that is registered, and skips the others, which
// apiservice-registered reports.
func (snap *snapshot) each(run func(r *aggregation.Registration) Result) []Result {
	var results []Result
	for _, version := range snap.expected {
		if r := aggregation.Find(snap.registrations, version); r != nil {
			results = append(results, run(r))
		} else {
			results = append(results, skip(nameOf(version), "is not registered, see apiservice-registered"))
		}
	}
	return results
}

func nameOf(version string) string { return version + "." + group }

// requestFailed returns the result of a failed request: Error for a missing permission, else
// Fail.
func (snap *snapshot) requestFailed(subject string, err error, remedy string) Result {
	switch {
	case connection.IsDenied(err):
		return Result{Subject: subject, Outcome: Error, Message: err.Error(), Remedy: "run it as a user who may, or leave it out with --skip"}
	case errors.Is(err, context.DeadlineExceeded):
		return fail(subject, fmt.Sprintf("no answer within %s", snap.cluster.Timeout), remedy)
	}
	return fail(subject, err.Error(), remedy)
}
