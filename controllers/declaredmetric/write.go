// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package declaredmetric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// The budget of writes. A metric whose value and conditions stay costs none.
const (
	// wordingInterval is the shortest time between a write of an object's status and
	// one that brings another value or message alone.
	wordingInterval = time.Minute
	// turningInterval is the shortest time between two writes of turned conditions. A
	// condition that has not turned for longer is written at once.
	turningInterval = 10 * time.Second
	// maxWrites bounds the writes of one poll, over all objects: 20 a second, so that
	// the operator's other work goes on. Turned conditions go first, then what was
	// written longest ago.
	maxWrites = 60
)

// change is a status that is to be written.
type change struct {
	*metric
	next    *v1alpha1.DeclaredMetricStatus
	urgency urgency
	written time.Time
}

// changeOf returns the status to write; false when there is none, or not yet.
func (c *Controller) changeOf(m *metric, v view) (change, bool) {
	now := c.Clock.Now()
	last := c.log.last(m.object.GetUID())
	next := change{metric: m, next: statusOf(m, &v, now), written: last.written}
	next.urgency = compare(m.status, next.next)
	switch next.urgency {
	case wording:
		return next, now.Sub(last.written) >= wordingInterval
	case turning:
		return next, now.Sub(last.turned) >= turningInterval
	}
	return change{}, false
}

// write writes what the budget allows. One failure stops no other.
func (c *Controller) write(ctx context.Context, changes []change) error {
	slices.SortStableFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(b.urgency, a.urgency), a.written.Compare(b.written))
	})
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

func (c *Controller) writeOne(ctx context.Context, next change) error {
	base, ok := next.object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T is no object", next.object)
	}
	object, _ := next.object.DeepCopyObject().(client.Object)
	switch o := object.(type) {
	case *v1alpha1.CustomMetric:
		o.Status = *next.next
	case *v1alpha1.ExternalMetric:
		o.Status = *next.next
	}
	// Only on top of what was read: whoever changed the spec meanwhile is heard first.
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	err := c.Client.Status().Patch(ctx, object, patch, client.FieldOwner(v1alpha1.FieldOwner))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		// The cache is behind; the next poll has it.
		return nil
	case err != nil:
		return fmt.Errorf("write the status of %s %s: %w", next.kind, client.ObjectKeyFromObject(object), err)
	}
	c.log.note(object.GetUID(), c.Clock.Now(), next.urgency)
	return nil
}

// writeLog is when the status of each object was last written.
type writeLog struct {
	mu   sync.Mutex
	when map[types.UID]times
}

type times struct{ written, turned time.Time }

func newWriteLog() *writeLog { return &writeLog{when: map[types.UID]times{}} }

func (l *writeLog) last(uid types.UID) times {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.when[uid]
}

func (l *writeLog) note(uid types.UID, now time.Time, how urgency) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.when[uid]
	last.written = now
	if how == turning {
		last.turned = now
	}
	l.when[uid] = last
}

// keep forgets all but the given objects.
func (l *writeLog) keep(metrics []*metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := make(map[types.UID]times, len(metrics))
	for _, m := range metrics {
		if at, ok := l.when[m.object.GetUID()]; ok {
			kept[m.object.GetUID()] = at
		}
	}
	l.when = kept
}
