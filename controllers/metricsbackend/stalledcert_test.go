// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
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
	t.Parallel()
	missing := func(w *world) {
		w.change(func(spec *v1alpha1.MetricsBackendSpec) {
			spec.Serving.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
		})
	}
	ends := func(w *world) {
		missing(w)
		w.endNamespace()
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
				w.delete(&service)
			}
		}},
		"its namespace ends": {stall: ends},
		// Nothing may be registered with a new authority before the stall is over.
		"the authority is lost": {stall: func(w *world) {
			missing(w)
			w.delete(w.secret("ca"))
		}},
		// What no client verifies by now gets no worse.
		"each caBundle is another": {renewed: true, stall: func(w *world) {
			missing(w)
			w.blank(v1, []byte("another"))
			w.blank(v1beta1, []byte("another"))
		}},
		"one is not verified": {renewed: true, stall: func(w *world) {
			missing(w)
			w.editAPIService(v1, func(s *apiregistrationv1.APIService) { s.Spec.CABundle, s.Spec.InsecureSkipTLSVerify = nil, true })
		}},
		"one caBundle is blanked": {renewed: true, stall: func(w *world) {
			missing(w)
			w.blank(v1, nil)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := ready(t)
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

// blank gives the version's APIService a caBundle that verifies nothing.
func (w *world) blank(gv schema.GroupVersion, bundle []byte) {
	w.t.Helper()
	w.editAPIService(gv, func(s *apiregistrationv1.APIService) { s.Spec.CABundle = bundle })
}

// An APIService that someone keeps from verifying anything holds up neither a
// renewal nor a rotation: clients of the other versions need them.
func TestCertificateWhileContested(t *testing.T) {
	t.Parallel()
	w, _ := ready(t)
	w.certs.untrusted = true
	r := w.live()
	rounds := func(done func() bool) {
		t.Helper()
		for range 100 {
			if len(w.apiService(v1).Spec.CABundle) > 0 {
				w.blank(v1, nil)
			}
			mustReconcile(t, r)
			w.step()
			if done() {
				return
			}
		}
		t.Fatalf("not done:\n%s", w.show())
	}
	rounds(func() bool { return w.condition(v1alpha1.ConditionStalled).Reason == v1alpha1.ReasonContested })
	before := w.mounted()[0]
	w.clock.Step(70 * 24 * time.Hour)
	rounds(func() bool { return !w.mounted()[0].Equal(before) })
	renewed, authority := w.mounted()[0], servingcert.ParseBundle(w.secret("ca").Data["tls.crt"])
	rotate("now")(w)
	rounds(func() bool {
		bundle := servingcert.ParseBundle(w.apiService(v1beta1).Spec.CABundle)
		return !w.mounted()[0].Equal(renewed) && len(bundle) == 1 && !bundle.Equal(authority)
	})
}
