// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func (w *world) loseLabel(name string) {
	w.t.Helper()
	service := &apiregistrationv1.APIService{}
	w.must(w.raw.Get(context.Background(), client.ObjectKey{Name: name}, service))
	service.Labels = nil
	w.must(w.raw.Update(context.Background(), service))
}

// A version whose APIService lost our label is in discovery all the same: it is
// retired before pods that do not serve it become ready.
func TestRetireWithoutLabel(t *testing.T) {
	w, r := ready(t, interceptor.Funcs{})
	w.loseLabel("v1.metrics.k8s.io")
	w.change(func(spec *v1alpha1.MetricsBackendSpec) {
		onlyV1beta1(spec)
		spec.Serving.Image = imageV1beta1
	})
	w.settle(r, w.isReady)
	if w.isRegistered(v1) {
		t.Errorf("Ready, and v1 still leads to the pods\n%s", w.show())
	}
}

// While its label keeps the backend stalled, a version that a ready pod does not
// serve goes too; that it is gone ends the stall.
func TestRetireUnservedWithoutLabel(t *testing.T) {
	w, r := ready(t, interceptor.Funcs{})
	w.loseLabel("v1.metrics.k8s.io")
	mustReconcile(t, r)
	if c := w.condition(v1alpha1.ConditionStalled); c.Reason != v1alpha1.ReasonNotOwned {
		t.Fatalf("Stalled is %+v", c)
	}
	if state := w.state("v1.metrics.k8s.io"); state != v1alpha1.APIServiceAvailable {
		t.Errorf("state %q of a version that answers", state)
	}
	p := w.pods()[0]
	p.Spec.Containers[0].Image = imageV1beta1
	w.must(w.raw.Update(context.Background(), &p))
	w.everBroken = "expected by this test"
	for range 6 {
		mustReconcile(t, r)
		w.discovered[v1] = w.isRegistered(v1)
	}
	if w.isRegistered(v1) || w.condition(v1alpha1.ConditionStalled).Status == metav1.ConditionTrue {
		t.Errorf("registered: %v\n%s", w.registeredVersions(), w.show())
	}
}

func TestRetireAllWithoutLabel(t *testing.T) {
	w, r := ready(t, interceptor.Funcs{})
	w.loseLabel("v1.metrics.k8s.io")
	if err := r.RetireAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := w.registeredVersions(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
