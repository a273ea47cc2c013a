// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
