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
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// Installation is the operator of one namespace.
type Installation struct {
	// APIReader reads around the cache: other operators write, too.
	APIReader client.Reader
	Clock     clock.PassiveClock
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
	// Owner names the installation that manages the backend, or did until it is claimed; or
	// is empty.
	Owner string
}

// Decide returns the standing of this installation. manages is whether it may deploy
// serving into the namespace that the backend has with this operator.
func (i *Installation) Decide(ctx context.Context, backend *v1alpha1.MetricsBackend, manages bool) (Decision, error) {
	if backend.Status.Installation.Namespace == i.Namespace {
		return Decision{Manages, i.Namespace}, nil
	}
	owner, err := i.owner(ctx, backend)
	switch {
	case err != nil:
		return Decision{}, err
	case owner == "", owner == i.Namespace: // new, or its record was lost
		return Decision{Claims, owner}, nil
	}
	ended, err := i.ended(ctx, owner)
	switch {
	case err != nil:
		return Decision{}, err
	case ended, manages && cannotManage(backend):
		return Decision{Claims, owner}, nil
	case !manages:
		return Decision{Uninvolved, owner}, nil
	}
	return Decision{Excluded, owner}, nil
}

// cannotManage reports whether the backend's operator has found that it may not deploy
// into spec.serving.namespace.
func cannotManage(backend *v1alpha1.MetricsBackend) bool {
	stalled := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionStalled)
	return stalled != nil && stalled.Reason == v1alpha1.ReasonNamespaceNotManaged && stalled.ObservedGeneration == backend.Generation
}

// ended reports whether an installation's namespace is gone, or being deleted with
// everything in it.
func (i *Installation) ended(ctx context.Context, name string) (bool, error) {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := i.APIReader.Get(ctx, client.ObjectKey{Name: name}, namespace)
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
func Message(owner, other string, ownerRuns bool) string {
	const see = "docs/concepts/lifecycle.md#two-operators"
	if !ownerRuns {
		return fmt.Sprintf("the operator in namespace %[1]s manages this MetricsBackend, but does not run, and the one in namespace %[2]s changes nothing of it: "+
			"install the first one again, or delete namespace %[1]s, and the second one takes over (%[3]s)", owner, other, see)
	}
	return fmt.Sprintf("the operator in namespace %s manages this MetricsBackend, and the one in namespace %s changes nothing of it: uninstall one of the two (%s)",
		owner, other, see)
}

// owner returns the installation that manages the backend, or "": by the status, or, since a
// status does not survive a backup and restore, by the labels of the backend's objects.
func (i *Installation) owner(ctx context.Context, backend *v1alpha1.MetricsBackend) (string, error) {
	if name := backend.Status.Installation.Namespace; name != "" {
		return name, nil
	}
	var services apiregistrationv1.APIServiceList
	if err := i.APIReader.List(ctx, &services, client.MatchingLabels{v1alpha1.LabelBackend: backend.Name}); err != nil {
		return "", fmt.Errorf("list APIServices to find the operator of MetricsBackend %s: %w", backend.Name, err)
	}
	for _, service := range services.Items {
		if name := service.Labels[v1alpha1.LabelInstallation]; name != "" {
			return name, nil
		}
	}
	binding := &rbacv1.ClusterRoleBinding{}
	key := client.ObjectKey{Name: manifests.Serving{Backend: backend.Name}.Name()}
	if err := i.APIReader.Get(ctx, key, binding); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("get ClusterRoleBinding %s to find the operator of MetricsBackend %s: %w", key.Name, backend.Name, err)
	}
	if binding.Labels[v1alpha1.LabelBackend] != backend.Name {
		return "", nil
	}
	return binding.Labels[v1alpha1.LabelInstallation], nil
}

// LeaseName is the name of the Lease by which the operators of one namespace elect a
// leader.
const LeaseName = "metrics-backend-operator.metricsbackend.io"

// leaseTimeout is how long a Lease may stay as it is while its operator runs. A leader
// renews it every four seconds, and the next one acquires it within seconds.
const leaseTimeout = time.Minute

// renewal is when a Lease was last seen to change.
type renewal struct {
	// leaseTime is by the holder's clock, which may differ from ours.
	leaseTime time.Time
	seen      time.Time
}

// Running reports whether an operator runs in the namespace: its Lease exists, and was
// renewed within leaseTimeout. A Lease that is read for the first time counts as renewed;
// so does one that cannot be read.
func (i *Installation) Running(ctx context.Context, namespace string) bool {
	lease := &coordinationv1.Lease{}
	err := i.APIReader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: LeaseName}, lease)
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case apierrors.IsNotFound(err):
		delete(i.renewals, namespace)
		return false
	case err != nil:
		klog.FromContext(ctx).Error(err, "Cannot read the Lease of another operator, which is taken to be running", "namespace", namespace)
		return true
	}
	now, renewed := i.Clock.Now(), ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
	last, known := i.renewals[namespace]
	if !known || !last.leaseTime.Equal(renewed) {
		last = renewal{leaseTime: renewed, seen: now}
		if i.renewals == nil {
			i.renewals = map[string]renewal{}
		}
		i.renewals[namespace] = last
	}
	return now.Sub(last.seen) < leaseTimeout
}
