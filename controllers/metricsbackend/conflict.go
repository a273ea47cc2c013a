// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// claims removes from the desired versions those that an older MetricsBackend claims, and
// those that a younger one has since our claim lapsed, and adds a conflict for each. Only
// their registration waits: pods are deployed and probed, so that the backend can take
// over in one step.
func (r *Reconciler) claims(ctx context.Context, s *reconcileState) error {
	if s.registered == nil {
		return nil
	}
	others, err := r.otherClaims(ctx, s)
	if err != nil {
		return err
	}
	s.backend.Status.LapsedClaims = nil
	for _, gv := range desiredVersions(s.spec) {
		var message string
		if lapsed := s.ownLapse(gv, others); lapsed != nil {
			s.backend.Status.LapsedClaims = append(s.backend.Status.LapsedClaims, *lapsed)
			message = describeOwnLapse(lapsed)
		} else {
			s.versions.lapsed[apiServiceName(gv)], message = s.claimsBeforeOurs(gv, others)
		}
		if message != "" {
			s.versions.desired = slices.DeleteFunc(s.versions.desired, func(other schema.GroupVersion) bool { return other == gv })
			s.addConflict(gv, v1alpha1.ReasonConflict, "%s", message)
		}
	}
	return nil
}

// claimsBeforeOurs returns the claims of older backends on the version that have lapsed;
// and, if another one has not, what to do about that.
func (s *reconcileState) claimsBeforeOurs(gv schema.GroupVersion, others []claim) (lapsed []lapse, message string) {
	for _, other := range others {
		if compareAge(other.backend, s.backend) > 0 || !slices.Contains(other.versions, gv) {
			continue
		}
		if l := s.lapseOf(other.backend, gv, others); l != nil {
			lapsed = append(lapsed, *l)
			continue
		}
		message = fmt.Sprintf("MetricsBackend %q is older and claims %s: take the version out of one of the two specs, or delete one of them",
			other.backend.Name, apiServiceName(gv))
		if at := lapsesAt(other.backend, gv); !at.IsZero() {
			message += fmt.Sprintf("; it is not available there, and if that lasts, the claim lapses at %s", formatTime(at))
		}
		return nil, message
	}
	return lapsed, ""
}

// claim is the versions that another MetricsBackend's spec names.
type claim struct {
	backend  *v1alpha1.MetricsBackend
	versions []schema.GroupVersion
}

// otherClaims returns the versions claimed by other MetricsBackends that are not being
// deleted, oldest backend first.
func (r *Reconciler) otherClaims(ctx context.Context, s *reconcileState) ([]claim, error) {
	var list v1alpha1.MetricsBackendList
	if err := r.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list MetricsBackends: %w", err)
	}
	var claims []claim
	for i := range list.Items {
		other := &list.Items[i]
		if other.UID == s.backend.UID || other.DeletionTimestamp != nil {
			continue
		}
		spec := *other.Spec.DeepCopy()
		v1alpha1.SetDefaults(&spec)
		claims = append(claims, claim{other, desiredVersions(spec)})
	}
	slices.SortFunc(claims, func(a, b claim) int { return compareAge(a.backend, b.backend) })
	return claims, nil
}

// awaitSuccessor returns what a backend that is being deleted waits for before it retires
// a version, or "". Another backend whose pods serve the version takes the APIService
// over, so that the version stays in discovery. The wait ends after successorTimeout.
func (r *Reconciler) awaitSuccessor(ctx context.Context, s *reconcileState, gv schema.GroupVersion) (string, error) {
	if s.namespace.gone {
		// Its pods are gone or terminating.
		return "", nil
	}
	name := apiServiceName(gv)
	left := successorTimeout - s.now.Sub(s.backend.DeletionTimestamp.Time)
	if left <= 0 {
		return "", nil
	}
	var live apiregistrationv1.APIService
	err := r.Live.Get(ctx, client.ObjectKey{Name: name}, &live)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("get APIService %s: %w", name, err)
	case !s.hasLabel(&live) || live.DeletionTimestamp != nil:
		return "", nil
	}
	others, err := r.otherClaims(ctx, s)
	if err != nil {
		return "", err
	}
	for _, other := range others {
		if !slices.Contains(other.versions, gv) {
			continue
		}
		if !readyToTakeOver(other.backend) {
			if hasLapsed(other.backend, gv, s.now) {
				continue
			}
			return "", nil
		}
		return fmt.Sprintf("APIService %s is about to be taken over by MetricsBackend %q", name, other.backend.Name), nil
	}
	return "", nil
}

// readyToTakeOver reports whether the backend waits for nothing but the version.
func readyToTakeOver(backend *v1alpha1.MetricsBackend) bool {
	serving := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionServingReady)
	stalled := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionStalled)
	return serving != nil && serving.Status == metav1.ConditionTrue && serving.ObservedGeneration == backend.Generation &&
		(stalled == nil || stalled.Reason == v1alpha1.ReasonConflict || stalled.Reason == v1alpha1.ReasonNotOwned)
}

// lapse is the claim of an older backend that does not count any more.
type lapse struct {
	backend string
	// since is when it lapsed, or zero while that backend has not recorded it.
	since time.Time
}

// lapsesAt returns when the claim of a backend on a version lapses, which may be in the
// past, by its status; or zero while the version, or everything of the backend, is
// available, or only waits for another backend.
func lapsesAt(backend *v1alpha1.MetricsBackend, gv schema.GroupVersion) time.Time {
	available := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionAvailable)
	if available == nil || available.Status == metav1.ConditionTrue {
		return time.Time{}
	}
	since := available.LastTransitionTime.Time
	// A backend without its namespace lists no versions.
	if known := storedVersion(&backend.Status, apiServiceName(gv)); known.Name != "" {
		if known.UnavailableSince == nil {
			return time.Time{}
		}
		if known.UnavailableSince.After(since) {
			since = known.UnavailableSince.Time
		}
	}
	return since.Add(claimTimeout)
}

func hasLapsed(backend *v1alpha1.MetricsBackend, gv schema.GroupVersion, now time.Time) bool {
	at := lapsesAt(backend, gv)
	return !at.IsZero() && !now.Before(at)
}

// lapseOf returns the lapse of an older backend's claim on the version, or nil: it has
// recorded that a younger backend has the version; or it has not been available for
// claimTimeout; or our APIService says that this was so when we took it over.
func (s *reconcileState) lapseOf(older *v1alpha1.MetricsBackend, gv schema.GroupVersion, others []claim) *lapse {
	name := apiServiceName(gv)
	recorded := find(older.Status.LapsedClaims, func(l v1alpha1.LapsedClaim) bool { return l.Name == name })
	live := s.registered[name]
	switch {
	case recorded.Name != "" && (recorded.HeldBy == s.backend.Name || claimsBy(others, recorded.HeldBy, gv) != nil):
		return &lapse{older.Name, recorded.Since.Time}
	case hasLapsed(older, gv, s.now):
		return &lapse{older.Name, lapsesAt(older, gv)}
	case live != nil && hadLapsed(live, older.Name):
		return &lapse{backend: older.Name}
	}
	return nil
}

// ownLapse returns the younger backend that has the version since our claim lapsed, as
// long as that names the version; or nil. An APIService that someone deletes meanwhile is
// that backend's to register again.
func (s *reconcileState) ownLapse(gv schema.GroupVersion, others []claim) *v1alpha1.LapsedClaim {
	name := apiServiceName(gv)
	lapsed := find(s.storedStatus.LapsedClaims, func(l v1alpha1.LapsedClaim) bool { return l.Name == name })
	if live := s.others[name]; live != nil && hadLapsed(live, s.backend.Name) {
		lapsed.HeldBy = live.Labels[v1alpha1.LabelBackend]
	}
	holder := claimsBy(others, lapsed.HeldBy, gv)
	if s.registered[name] != nil || holder == nil || compareAge(holder, s.backend) < 0 {
		return nil
	}
	if lapsed.Since.IsZero() {
		at := lapsesAt(s.backend, gv)
		if at.IsZero() || at.After(s.now) {
			at = s.now // available again just before it was taken over
		}
		lapsed.Since = metav1.NewTime(at).Rfc3339Copy()
	}
	lapsed.Name = name
	return &lapsed
}

// claimsBy returns the backend of that name if it claims the version, or nil.
func claimsBy(others []claim, name string, gv schema.GroupVersion) *v1alpha1.MetricsBackend {
	return find(others, func(c claim) bool { return c.backend.Name == name && slices.Contains(c.versions, gv) }).backend
}

// hadLapsed reports whether the claim of the backend had lapsed when the APIService was
// taken over.
func hadLapsed(service *apiregistrationv1.APIService, backend string) bool {
	return slices.Contains(strings.Split(service.Annotations[v1alpha1.AnnotationLapsedClaims], ","), backend)
}

func describeOwnLapse(l *v1alpha1.LapsedClaim) string {
	return fmt.Sprintf("MetricsBackend %q, which is younger, has had %s since the claim lapsed at %s: it had not been available for %s; "+
		"to get it back, take the version out of that spec, or delete that MetricsBackend", l.HeldBy, l.Name, formatTime(l.Since.Time), claimTimeout)
}

// describeLapses says whose claims on a version have lapsed, or returns "".
func (s *reconcileState) describeLapses(name string) string {
	var parts []string
	for _, l := range s.versions.lapsed[name] {
		when := "has lapsed"
		if !l.since.IsZero() {
			when = "lapsed at " + formatTime(l.since)
		}
		parts = append(parts, fmt.Sprintf("the claim of MetricsBackend %q, which is older, %s", l.backend, when))
	}
	return strings.Join(parts, "; ")
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// compareAge orders backends by their creation, the oldest first. Creation times have a
// resolution of one second; within it the name decides.
func compareAge(a, b *v1alpha1.MetricsBackend) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}
