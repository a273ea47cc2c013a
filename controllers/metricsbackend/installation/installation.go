// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package installation decides which of several operators in a cluster manages a
// MetricsBackend. An installation of the operator is named by its namespace: replicas in
// one namespace elect a leader.
//
// status.installation of the MetricsBackend has the decision. It is written with the
// resourceVersion that was read, and before anything else, so that two operators never
// manage one backend.
package installation

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Installation is the operator of one namespace.
type Installation struct {
	// Live reads around the cache: other operators write, too.
	Live  client.Reader
	Clock clock.PassiveClock
	// Namespace names the installation.
	Namespace string

	mu       sync.Mutex
	renewals map[string]renewal
}

// Standing is what an installation may do with a MetricsBackend.
type Standing int

const (
	// Manages means that it is recorded as the one that manages the backend.
	Manages Standing = iota
	// Claims means that it may record itself, and manages the backend once that is written.
	Claims
	// Excluded means that another installation manages the backend, and both would. It
	// only reports that.
	Excluded
	// Uninvolved means that another installation manages the backend, as it should.
	Uninvolved
)

// Decision is the standing of an installation, and what it follows from.
type Decision struct {
	Standing Standing
	// Owner names the installation that manages the backend, unless Claims.
	Owner string
	// Recorded: the owner has recorded itself. An operator of an earlier release does not,
	// and knows nothing of others.
	Recorded bool
	// Claim is the record to write.
	Claim v1alpha1.InstallationStatus
}

// Decide returns the standing of this installation. manages is whether it may deploy
// serving into the namespace that the backend has with this operator.
func (i *Installation) Decide(ctx context.Context, backend *v1alpha1.MetricsBackend, manages bool) (Decision, error) {
	stored, wanted := backend.Status.Installation, backend.Annotations[v1alpha1.AnnotationInstallation]
	if stored.Namespace == i.Namespace {
		return Decision{Standing: Manages, Owner: i.Namespace, Recorded: true}, nil
	}
	owner, recorded, err := i.owner(ctx, backend)
	if err != nil {
		return Decision{}, err
	}
	d := Decision{Owner: owner, Recorded: recorded}
	if owner == i.Namespace {
		// Its record was lost, or it is the successor of an earlier release.
		d.Standing, d.Claim = Claims, v1alpha1.InstallationStatus{Namespace: i.Namespace}
		return d, nil
	}
	if wanted != "" && wanted != i.Namespace && (wanted == owner || i.Running(ctx, wanted)) {
		d.Standing = Uninvolved
		return d, nil
	}
	if owner == "" {
		d.Standing, d.Claim = Claims, v1alpha1.InstallationStatus{Namespace: i.Namespace}
		return d, nil
	}
	ended, err := i.ended(ctx, owner)
	if err != nil {
		return Decision{}, err
	}
	switch {
	case ended, manages && cannotManage(backend),
		// One of an earlier release would go on.
		wanted == i.Namespace && !movesElsewhere(stored, i.Namespace) && (recorded || !i.Running(ctx, owner)):
		d.Standing, d.Claim = Claims, i.takeOver(backend, owner)
	case !manages, stored.MovingFrom != "":
		d.Standing = Uninvolved
	default:
		d.Standing = Excluded
	}
	return d, nil
}

// takeOver returns the record of a backend that another installation managed. Without
// spec.namespace, serving moves from that one's namespace.
func (i *Installation) takeOver(backend *v1alpha1.MetricsBackend, owner string) v1alpha1.InstallationStatus {
	claim := v1alpha1.InstallationStatus{Namespace: i.Namespace}
	switch from := backend.Status.Installation.MovingFrom; {
	case backend.Spec.Namespace != "":
	case movesElsewhere(backend.Status.Installation, i.Namespace):
		// The owner's namespace has ended during a move, and requests may still go to the
		// one before.
		claim.MovingFrom = from
	default:
		claim.MovingFrom = owner
	}
	return claim
}

// movesElsewhere reports whether a move is unfinished that is not from this namespace.
func movesElsewhere(stored v1alpha1.InstallationStatus, namespace string) bool {
	return stored.MovingFrom != "" && stored.MovingFrom != namespace
}

// cannotManage reports whether the backend's operator has found that it may not deploy
// into spec.namespace.
func cannotManage(backend *v1alpha1.MetricsBackend) bool {
	stalled := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionStalled)
	return stalled != nil && stalled.Reason == v1alpha1.ReasonNamespaceNotManaged && stalled.ObservedGeneration == backend.Generation
}

// ended reports whether an installation's namespace is gone, or being deleted with
// everything in it.
func (i *Installation) ended(ctx context.Context, name string) (bool, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := i.Live.Get(ctx, client.ObjectKey{Name: name}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get namespace %s of another operator: %w", name, err)
	}
	return namespace.DeletionTimestamp != nil, nil
}

// Message describes two installations of which only the owner manages the backend, and what
// a user can do. Both report the same text.
func (d Decision) Message(backend, other string, ownerRuns bool) string {
	const see = "docs/lifecycle.md#two-operators"
	runs := ""
	if !ownerRuns {
		runs = ", but does not run"
	}
	state := fmt.Sprintf("the operator in namespace %s manages this MetricsBackend%s, and the one in namespace %s changes nothing of it", d.Owner, runs, other)
	annotate := fmt.Sprintf("kubectl annotate metricsbackend %s %s=", backend, v1alpha1.AnnotationInstallation)
	switch {
	case !ownerRuns:
		return fmt.Sprintf("%s: install the first one again, delete namespace %s, or move it to the second one (%s%s; %s)", state, d.Owner, annotate, other, see)
	case !d.Recorded:
		return fmt.Sprintf("%s: uninstall one of the two, or, to move it to namespace %s, first update or stop the operator in %s, whose release would go on (%s)",
			state, other, d.Owner, see)
	}
	return fmt.Sprintf("%s: uninstall one of the two, or say which one manages it (%s%s, or =%s, to which it moves then; %s)", state, annotate, d.Owner, other, see)
}
