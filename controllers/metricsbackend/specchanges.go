// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// specChanges finds field managers that keep changing one backend's spec back, such as two GitOps tools that apply it.
// The operator follows each change: which of them is right, only a user knows.
type specChanges struct {
	generation int64
	// seen is when each spec was last seen, by its hash.
	seen map[[sha256.Size]byte]time.Time
	// writes are the last writes of field managers at generation.
	writes map[string]metav1.Time
	// reversals are the last two times at which a field manager changed the spec to one that was seen before.
	reversals map[string][2]time.Time
}

// observe records a change of the spec since the last call.
func (c *specChanges) observe(backend *v1alpha1.MetricsBackend, now time.Time) {
	if backend.Generation == c.generation {
		return
	}
	body, _ := json.Marshal(backend.Spec) // what was decoded can be encoded
	if c.seen == nil {
		c.seen, c.reversals = map[[sha256.Size]byte]time.Time{}, map[string][2]time.Time{}
	}
	maps.DeleteFunc(c.seen, func(_ [sha256.Size]byte, at time.Time) bool { return now.Sub(at) >= contestWindow })
	spec, writes := sha256.Sum256(body), specWrites(backend)
	if _, reversal := c.seen[spec]; reversal {
		for manager, at := range writes {
			if before := c.writes[manager]; !at.Equal(&before) {
				c.reversals[manager] = [2]time.Time{c.reversals[manager][1], now}
			}
		}
	}
	c.generation, c.seen[spec], c.writes = backend.Generation, now, writes
}

// specWrites returns the last write of each field manager but the operator.
func specWrites(backend *v1alpha1.MetricsBackend) map[string]metav1.Time {
	writes := map[string]metav1.Time{}
	for _, entry := range backend.ManagedFields {
		if last := writes[entry.Manager]; entry.Subresource == "" && entry.Manager != v1alpha1.FieldOwner && last.Before(entry.Time) {
			writes[entry.Manager] = *entry.Time
		}
	}
	return writes
}

// revertingManagers returns the field managers that have changed the spec back twice within contestWindow, or nil. One
// alone is none: a user may try two specs in turn.
func (c *specChanges) revertingManagers(now time.Time) []string {
	var managers []string
	for manager, times := range c.reversals {
		if now.Sub(times[0]) < contestWindow {
			managers = append(managers, manager)
		}
	}
	if len(managers) < 2 {
		return nil
	}
	slices.Sort(managers)
	return managers
}

// reportRevertingManagers adds the field managers that keep changing the spec back to Ready, and to the condition that
// repeats its message.
func (s *reconcileState) reportRevertingManagers() {
	managers := s.history.specChanges.revertingManagers(s.now)
	if managers == nil || s.backend.DeletionTimestamp != nil {
		return
	}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if c := meta.FindStatusCondition(s.backend.Status.Conditions, kind); c != nil {
			c.Message = text.Truncate(fmt.Sprintf("%s; field managers %s keep changing the spec back: let only one of them apply it",
				c.Message, strings.Join(managers, ", ")), maxMessage)
		}
	}
}
