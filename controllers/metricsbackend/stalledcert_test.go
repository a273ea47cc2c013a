// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func (w *world) secret(name string) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{}
	err := w.raw.Get(context.Background(), client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-cluster-" + name}, secret)
	if !apierrors.IsNotFound(err) {
		w.must(err)
	}
	return secret
}

// A backend that is stalled goes on serving what is registered, for as long as it
// takes someone to look: its certificate must not expire meanwhile.
func TestCertificateWhileStalled(t *testing.T) {
	missing := func(w *world) {
		w.change(func(spec *v1alpha1.MetricsBackendSpec) {
			spec.Serving.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
		})
	}
	ends := func(w *world) {
		missing(w)
		namespace := &corev1.Namespace{}
		w.must(w.raw.Get(context.Background(), client.ObjectKey{Name: systemNamespace}, namespace))
		namespace.Finalizers = []string{"kubernetes"}
		w.must(w.raw.Update(context.Background(), namespace))
		w.must(w.raw.Delete(context.Background(), namespace))
	}
	cases := map[string]struct {
		stall   func(*world)
		renewed bool
	}{
		"a Secret is missing": {stall: missing, renewed: true},
		"an APIService lost its label": {
			stall:   func(w *world) { w.loseLabel("v1.metrics.k8s.io") },
			renewed: true,
		},
		"nothing is registered": {stall: func(w *world) {
			missing(w)
			for _, service := range w.apiServices() {
				w.must(w.raw.Delete(context.Background(), &service))
			}
		}},
		"its namespace ends": {stall: ends},
		// Nothing may be registered with a new authority before the stall is over.
		"the authority is lost": {stall: func(w *world) {
			missing(w)
			w.must(w.raw.Delete(context.Background(), w.secret("ca")))
		}},
		"the authority is not in use yet": {stall: func(w *world) {
			missing(w)
			for _, service := range w.apiServices() {
				service.Spec.CABundle = []byte("another")
				w.must(w.raw.Update(context.Background(), &service))
			}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := ready(t, interceptor.Funcs{})
			ca, before := w.secret("ca"), w.secret("tls")
			tc.stall(w)
			mustReconcile(t, r)
			if c := w.condition(v1alpha1.ConditionStalled); c.Type == "" {
				t.Fatalf("not stalled:\n%s", w.show())
			}
			w.clock.Step(80 * 24 * time.Hour)
			mustReconcile(t, r)
			after := w.secret("tls")
			if renewed := string(before.Data["tls.crt"]) != string(after.Data["tls.crt"]); renewed != tc.renewed {
				t.Errorf("renewed %t, want %t", renewed, tc.renewed)
			}
			if string(after.Data["ca.crt"]) != string(ca.Data["tls.crt"]) {
				t.Error("the bundle is not the authority that clients know")
			}
			if found := w.secret("ca"); found.Name != "" && string(found.Data["tls.crt"]) != string(ca.Data["tls.crt"]) {
				t.Error("there is another authority")
			}
			if c := w.condition(v1alpha1.ConditionCertificatesValid); tc.renewed && c.Status != "True" {
				t.Errorf("CertificatesValid is %+v", c)
			}
		})
	}
}
