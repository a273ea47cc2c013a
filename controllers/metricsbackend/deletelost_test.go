// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A process registers APIServices and ends before it writes the status; the next one
// deletes them and ends too. The third finds them neither in a list nor in the status,
// and must still wait for discovery.
func TestDeleteAfterLostStatus(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend())
	errKilled := errors.New("the process was killed")
	withoutStatus := func() interceptor.Funcs {
		return intercepted(func(c call, make func() error) error {
			if c.name == patchStatus {
				return errKilled
			}
			return make()
		})
	}
	fc.reconcileUntil(fc.reconciler(), func() bool { return fc.state("v1.metrics.k8s.io") == "Pending" && fc.allReady() })
	r := fc.reconciler(withoutStatus())
	for range 3 {
		if _, err := reconcileOnce(t, r); err == nil {
			t.Fatal("the status was written")
		}
	}
	fc.step()
	if !fc.isRegistered(v1) || !fc.discovered[v1] || fc.state("v1.metrics.k8s.io") != "Pending" {
		t.Fatalf("not what this test is about:\n%s", fc.show())
	}
	fc.delete(fc.backend())
	if _, err := reconcileOnce(t, fc.reconciler(withoutStatus())); err == nil || fc.isRegistered(v1) {
		t.Fatalf("registered %t, %v", fc.isRegistered(v1), err)
	}

	r = fc.reconciler()
	mustReconcile(t, r)
	if fc.isGone() || !strings.Contains(fc.inventory(), "Service operator-ns/metrics-serving-cluster") {
		t.Error("took the Service away while v1 is in discovery")
	}
	fc.reconcileUntil(r, fc.isGone)
}

func (fc *fakeCluster) allReady() bool {
	for _, p := range fc.pods() {
		if !isReady(&p) {
			return false
		}
	}
	return len(fc.pods()) == 2
}
