// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A process that registered, or stalled, ends before its status is written; the
// next one deletes the APIServices and ends too. The third finds them neither in
// a list nor as registered in the status, and must still wait for discovery.
func TestDeleteAfterLostStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newBackend())
	errKilled := errors.New("the process was killed")
	withoutStatus := func() interceptor.Funcs {
		return intercepted(func(c call, make func() error) error {
			if c.name == patchStatus {
				return errKilled
			}
			return make()
		})
	}
	w.settle(w.reconciler(), func() bool { return w.state("v1.metrics.k8s.io") == "Pending" && w.allReady() })
	r := w.reconciler(withoutStatus())
	for range 3 {
		if _, err := reconcileOnce(t, r); err == nil {
			t.Fatal("the status was written")
		}
	}
	w.step()
	if !w.isRegistered(v1) || !w.discovered[v1] || w.state("v1.metrics.k8s.io") != "Pending" {
		t.Fatalf("not what this test is about:\n%s", w.show())
	}
	w.delete(w.backend())
	if _, err := reconcileOnce(t, w.reconciler(withoutStatus())); err == nil || w.isRegistered(v1) {
		t.Fatalf("registered %t, %v", w.isRegistered(v1), err)
	}

	r = w.reconciler()
	mustReconcile(t, r)
	if w.isGone() || !strings.Contains(w.inventory(), "Service operator-ns/metrics-serving-cluster") {
		t.Error("took the Service away while v1 is in discovery")
	}
	w.settle(r, w.isGone)
}

func (w *world) allReady() bool {
	for _, p := range w.pods() {
		if !isReady(&p) {
			return false
		}
	}
	return len(w.pods()) == 2
}
