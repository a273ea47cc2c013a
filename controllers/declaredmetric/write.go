// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package declaredmetric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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
	reports *reports
	// next is nil if the metric must be read first.
	next    *v1alpha1.DeclaredMetricStatus
	urgency urgency
	written time.Time
	// turn is its position among the changes of its urgency in its namespace.
	turn int
}

// changeOf returns the status to write, and whether it is due.
func (c *Controller) changeOf(m *metric, r *reports) (change, bool) {
	now := c.Clock.Now()
	last := c.written[m.UID]
	next := change{metric: m, reports: r, urgency: transition, written: last.written}
	if !m.unused && m.status != &toldStatus {
		next.next = statusOf(m, r, now)
		next.urgency = compare(m.status, next.next)
	}
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
		q := queue{changes[i].urgency, changes[i].Namespace}
		changes[i].turn = length[q]
		length[q]++
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(b.urgency, a.urgency), cmp.Compare(a.turn, b.turn))
	})
}

func (c *Controller) writeOne(ctx context.Context, next change) error {
	if next.next == nil {
		if err := c.read(ctx, &next); err != nil {
			return client.IgnoreNotFound(err) // the informer lags behind
		}
	}
	// With the resourceVersion that was read: a newer spec is handled by the next poll.
	patch := client.MergeFromWithOptions(next.object(*next.status), client.MergeFromWithOptimisticLock{})
	err := c.Client.Status().Patch(ctx, next.object(*next.next), patch, client.FieldOwner(v1alpha1.FieldOwner))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		// The cache lags behind; the next poll tries again.
		return nil
	case err != nil:
		return fmt.Errorf("write the status of %s %s: %w", next.kind, next.id().NamespacedName, err)
	}
	last := c.written[next.UID]
	last.written = c.Clock.Now()
	if next.urgency == transition {
		last.transitioned = last.written
	}
	c.written[next.UID] = last
	return nil
}

// read reads the metric of a change, and sets what is to be written.
func (c *Controller) read(ctx context.Context, next *change) error {
	object := next.object(v1alpha1.DeclaredMetricStatus{})
	if err := c.Live.Get(ctx, next.id().NamespacedName, object); err != nil {
		return fmt.Errorf("read %s %s to write its status: %w", next.kind, next.id().NamespacedName, err)
	}
	next.metric = newMetric(object)
	next.next = statusOf(next.metric, next.reports, c.Clock.Now())
	return nil
}

// times are when a status was last written, and its conditions.
type times struct{ written, transitioned time.Time }

// forgetDeleted forgets when objects were written that were deleted or need no write.
func (c *Controller) forgetDeleted(metrics []*metric) {
	written := map[types.UID]times{}
	for _, m := range metrics {
		if last, ok := c.written[m.UID]; ok && (!m.unused || !m.told) {
			written[m.UID] = last
		}
	}
	c.written = written
}
