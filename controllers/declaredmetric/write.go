// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package declaredmetric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Limits of writes. A metric whose value and conditions stay the same is not written.
const (
	// detailInterval is the minimum time between two writes of an object's status if only
	// values or messages changed.
	detailInterval = time.Minute
	// transitionInterval is the minimum time between two writes of an object's conditions.
	// The first transition after that is written at once.
	transitionInterval = 10 * time.Second
	// maxWrites bounds the writes of one poll: 20 per second, so that the operator's other
	// writes are not delayed. Transitions go first, and of those namespaces take turns, each
	// with its objects written longest ago.
	maxWrites = 60
)

// change is a status to write.
type change struct {
	*metric
	next    *v1alpha1.DeclaredMetricStatus
	urgency urgency
	written time.Time
	// turn is its position among the changes of its urgency in its namespace.
	turn int
}

// changeOf returns the status to write, and whether it is due.
func (c *Controller) changeOf(m *metric, r reports) (change, bool) {
	now := c.Clock.Now()
	last := c.written[m.object.GetUID()]
	next := change{metric: m, next: statusOf(m, &r, now), written: last.written}
	next.urgency = compare(m.status, next.next)
	switch next.urgency {
	case detail:
		return next, now.Sub(last.written) >= detailInterval
	case transition:
		return next, now.Sub(last.transitioned) >= transitionInterval
	}
	return change{}, false
}

// write writes up to maxWrites statuses. It goes on after an error.
func (c *Controller) write(ctx context.Context, changes []change) error {
	order(changes)
	if left := len(changes) - maxWrites; left > 0 {
		klog.FromContext(ctx).V(2).Info("More statuses have changed than are written at once, the others wait", "waiting", left)
		changes = changes[:maxWrites]
	}
	var errs []error
	for _, next := range changes {
		err := c.writeOne(ctx, next)
		countWrite(err)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// order sorts changes by their urgency. Of equally urgent ones each namespace has one before
// any has a second.
func order(changes []change) {
	slices.SortStableFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(b.urgency, a.urgency), a.written.Compare(b.written))
	})
	type queue struct {
		urgency
		namespace string
	}
	length := map[queue]int{}
	for i := range changes {
		q := queue{changes[i].urgency, changes[i].object.GetNamespace()}
		changes[i].turn = length[q]
		length[q]++
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(b.urgency, a.urgency), cmp.Compare(a.turn, b.turn))
	})
}

func (c *Controller) writeOne(ctx context.Context, next change) error {
	object, ok := next.object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", next.object)
	}
	switch o := object.(type) {
	case *v1alpha1.CustomMetric:
		o.Status = *next.next
	case *v1alpha1.ExternalMetric:
		o.Status = *next.next
	}
	// With the resourceVersion that was read: a newer spec is handled by the next poll.
	patch := client.MergeFromWithOptions(next.object, client.MergeFromWithOptimisticLock{})
	err := c.Client.Status().Patch(ctx, object, patch, client.FieldOwner(v1alpha1.FieldOwner))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		// The cache lags behind; the next poll tries again.
		return nil
	case err != nil:
		return fmt.Errorf("write the status of %s %s: %w", next.kind, client.ObjectKeyFromObject(object), err)
	}
	last := c.written[object.GetUID()]
	last.written = c.Clock.Now()
	if next.urgency == transition {
		last.transitioned = last.written
	}
	c.written[object.GetUID()] = last
	return nil
}

// times are when a status was last written, and its conditions.
type times struct{ written, transitioned time.Time }

// forgetDeleted forgets when all other objects were written.
func (c *Controller) forgetDeleted(metrics []*metric) {
	exists := sets.New[types.UID]()
	for _, m := range metrics {
		exists.Insert(m.object.GetUID())
	}
	maps.DeleteFunc(c.written, func(uid types.UID, _ times) bool { return !exists.Has(uid) })
}
