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

func (fc *fakeCluster) secret(name string) *corev1.Secret {
	fc.t.Helper()
	secret := &corev1.Secret{}
	err := fc.raw.Get(context.Background(), client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-cluster-" + name}, secret)
	if !apierrors.IsNotFound(err) {
		fc.must(err)
	}
	return secret
}

// A stalled backend keeps serving what is registered, so its certificate must not expire
// meanwhile.
func TestCertificateWhileStalled(t *testing.T) {
	t.Parallel()
	missing := func(fc *fakeCluster) {
		fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
			spec.Serving.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
		})
	}
	ends := func(fc *fakeCluster) {
		missing(fc)
		fc.deleteNamespace()
	}
	cases := map[string]struct {
		stall   func(*fakeCluster)
		renewed bool
	}{
		"a Secret is missing": {stall: missing, renewed: true},
		"an APIService lost its label": {
			stall:   func(fc *fakeCluster) { fc.loseLabel("v1.metrics.k8s.io") },
			renewed: true,
		},
		"nothing is registered": {stall: func(fc *fakeCluster) {
			missing(fc)
			for _, service := range fc.apiServices() {
				fc.delete(&service)
			}
		}},
		"its namespace ends": {stall: ends},
		// Nothing may be registered with a new authority while the backend is stalled.
		"the authority is lost": {stall: func(fc *fakeCluster) {
			missing(fc)
			fc.delete(fc.secret("ca"))
		}},
		// No client verifies it now, so a new certificate makes nothing worse.
		"each caBundle is another": {renewed: true, stall: func(fc *fakeCluster) {
			missing(fc)
			fc.setCABundle(v1, []byte("another"))
			fc.setCABundle(v1beta1, []byte("another"))
		}},
		"one is not verified": {renewed: true, stall: func(fc *fakeCluster) {
			missing(fc)
			fc.editAPIService(v1, func(s *apiregistrationv1.APIService) { s.Spec.CABundle, s.Spec.InsecureSkipTLSVerify = nil, true })
		}},
		"one caBundle is blanked": {renewed: true, stall: func(fc *fakeCluster) {
			missing(fc)
			fc.setCABundle(v1, nil)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc, r := ready(t)
			ca, before := fc.secret("ca"), fc.secret("tls")
			tc.stall(fc)
			mustReconcile(t, r)
			if c := fc.condition(v1alpha1.ConditionStalled); c.Type == "" {
				t.Fatalf("not stalled:\n%s", fc.show())
			}
			fc.clock.Step(80 * 24 * time.Hour)
			mustReconcile(t, r)
			after := fc.secret("tls")
			if renewed := string(before.Data["tls.crt"]) != string(after.Data["tls.crt"]); renewed != tc.renewed {
				t.Errorf("renewed %t, want %t", renewed, tc.renewed)
			}
			if string(after.Data["ca.crt"]) != string(ca.Data["tls.crt"]) {
				t.Error("the bundle is not the authority that clients know")
			}
			if found := fc.secret("ca"); found.Name != "" && string(found.Data["tls.crt"]) != string(ca.Data["tls.crt"]) {
				t.Error("there is another authority")
			}
			if c := fc.condition(v1alpha1.ConditionCertificatesValid); tc.renewed && c.Status != "True" {
				t.Errorf("CertificatesValid is %+v", c)
			}
		})
	}
}

// setCABundle gives the version's APIService a caBundle that verifies nothing.
func (fc *fakeCluster) setCABundle(gv schema.GroupVersion, bundle []byte) {
	fc.t.Helper()
	fc.editAPIService(gv, func(s *apiregistrationv1.APIService) { s.Spec.CABundle = bundle })
}

// An APIService that another manager keeps from verifying anything blocks neither renewal
// nor rotation, which clients of the other versions need.
func TestCertificateWhileContested(t *testing.T) {
	t.Parallel()
	fc, _ := ready(t)
	fc.certs.untrusted = true
	r := fc.live()
	rounds := func(done func() bool) {
		t.Helper()
		for range 100 {
			if len(fc.apiService(v1).Spec.CABundle) > 0 {
				fc.setCABundle(v1, nil)
			}
			mustReconcile(t, r)
			fc.step()
			if done() {
				return
			}
		}
		t.Fatalf("not done:\n%s", fc.show())
	}
	rounds(func() bool { return fc.condition(v1alpha1.ConditionStalled).Reason == v1alpha1.ReasonContested })
	before := fc.mounted()[0]
	fc.clock.Step(70 * 24 * time.Hour)
	rounds(func() bool { return !fc.mounted()[0].Equal(before) })
	renewed, authority := fc.mounted()[0], servingcert.ParseBundle(fc.secret("ca").Data["tls.crt"])
	rotate("now")(fc)
	rounds(func() bool {
		bundle := servingcert.ParseBundle(fc.apiService(v1beta1).Spec.CABundle)
		return !fc.mounted()[0].Equal(renewed) && len(bundle) == 1 && !bundle.Equal(authority)
	})
}
