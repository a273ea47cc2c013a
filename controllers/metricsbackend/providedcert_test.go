// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

// An unusable Secret of the user is reported. The previous certificate stays in use, and
// the operator continues once the Secret is correct.
func TestProvidedCertificateIsWrong(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		wrong        func(*fakeCluster)
		secret       string
		reason, want string
	}{
		"it does not exist": {wrong: func(*fakeCluster) {}, reason: v1alpha1.ReasonSecretMissing, want: "does not exist"},
		"it has expired": {
			wrong: func(fc *fakeCluster) {
				fc.provide("mine")
				fc.clock.Step(servingcert.LeafLifetime + time.Hour)
				fc.certs.untrusted = true // the managed one has, too
			},
			reason: v1alpha1.ReasonCertificateExpired, want: "expired on 2027-01-30",
		},
		"it is the operator's own": {
			wrong: func(*fakeCluster) {}, secret: "metrics-serving-cluster-tls",
			reason: v1alpha1.ReasonInvalid, want: "give yours another name",
		},
	}
	for name, tc := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc, r := ready(t)
			before := fc.mounted()
			tc.wrong(fc)
			if tc.secret == "" {
				tc.secret = "mine"
			}
			useSecret(tc.secret)(fc)
			fc.reconcileRounds(r, 5)
			for _, kind := range []string{v1alpha1.ConditionCertificatesValid, v1alpha1.ConditionReady} {
				fc.wantCondition(kind, "False", tc.reason, tc.want)
			}
			fc.wantCondition(v1alpha1.ConditionStalled, "", tc.reason)
			if !fc.isRegistered(v1) || !fc.certs.untrusted && !fc.mounted()[0].Equal(before[0]) {
				t.Error("what was served did not stay")
			}
			right := fc.provide("right")
			useSecret("right")(fc)
			fc.reconcileUntil(r, func() bool {
				return fc.isReady() && fc.bundles()["v1.metrics.k8s.io"].Equal(servingcert.ParseBundle(right["ca.crt"]))
			})
			if fc.secret("ca").Name != "" {
				t.Error("the managed authority is still there")
			}
		})
	}
}

// A new backend with a missing Secret waits for it, and says so.
func TestProvidedCertificateFromTheStart(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.Certificates = v1alpha1.CertificatesSpec{
			Mode: v1alpha1.CertificatesSecret, SecretRef: &v1alpha1.SecretReference{Name: "mine"},
		}
	}))
	r := fc.reconciler()
	fc.reconcileRounds(r, 5)
	if c := fc.condition(v1alpha1.ConditionStalled); c.Reason != v1alpha1.ReasonSecretMissing || len(fc.pods()) > 0 {
		t.Errorf("%d pods, Stalled is %+v", len(fc.pods()), c)
	}
	data := fc.provide("mine")
	fc.reconcileUntil(r, fc.isReady)
	if got := fc.secret("tls").Data["tls.crt"]; string(got) != string(data["tls.crt"]) {
		t.Error("another certificate is served")
	}
}

// The user's Secret is not ours, even with our label.
func TestProvidedSecretStays(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.provide("mine")
	key := client.ObjectKey{Namespace: systemNamespace, Name: "mine"}
	mine := &corev1.Secret{}
	fc.get(key, mine)
	mine.Labels = map[string]string{v1alpha1.LabelBackend: backendName}
	fc.update(mine)
	useSecret("mine")(fc)
	fc.reconcileRounds(r, 5)
	fc.get(key, mine)
	fc.reconcileUntil(r, fc.isReady)
}

// A certificate that is not renewed is reported two weeks before it expires, while the
// backend stays ready. A renewed one of another authority is served as soon as clients
// trust it.
func TestCertificateExpiring(t *testing.T) {
	fc, r := ready(t)
	fc.provide("mine")
	useSecret("mine")(fc)
	fc.reconcileUntil(r, fc.isReady)
	fc.reconcileUntil(r, func() bool { return len(fc.bundles()["v1.metrics.k8s.io"]) == 1 })
	expires := fc.mounted()[0].NotAfter
	recorded := func() float64 { return testutil.ToFloat64(certificateGauge.WithLabelValues(backendName)) }
	fc.clock.SetTime(expires.Add(-20 * 24 * time.Hour))
	mustReconcile(t, r)
	if c := fc.condition(v1alpha1.ConditionCertificatesValid); c.Status != "True" || recorded() != float64(expires.Unix()) {
		t.Errorf("20 days before: expires at %v, %+v", recorded(), c)
	}
	fc.clock.Step(7 * 24 * time.Hour)
	mustReconcile(t, r)
	c := fc.condition(v1alpha1.ConditionCertificatesValid)
	if c.Status != "False" || c.Reason != v1alpha1.ReasonCertificateExpiring || !strings.Contains(c.Message, "operator-ns/mine") {
		t.Errorf("13 days before: %+v", c)
	}
	fc.wantCondition(v1alpha1.ConditionReady, "True", "")
	fc.certs.delay = 2
	for range 2 {
		data := fc.provide("mine")
		mustReconcile(t, r)
		fc.reconcileUntil(r, func() bool {
			return fc.isReady() && fc.condition(v1alpha1.ConditionCertificatesValid).Reason == v1alpha1.ReasonSucceeded &&
				string(fc.secret("tls").Data["tls.crt"]) == string(data["tls.crt"]) &&
				fc.bundles()["v1.metrics.k8s.io"].Equal(servingcert.ParseBundle(data["ca.crt"]))
		})
	}
}

func useCertManager(fc *fakeCluster) {
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.Certificates = v1alpha1.CertificatesSpec{
			Mode:        v1alpha1.CertificatesCertManager,
			CertManager: &v1alpha1.CertManagerSpec{IssuerRef: v1alpha1.IssuerReference{Name: "ours", Kind: "Issuer", Group: "cert-manager.io"}},
		}
	})
}

// certificateRequest returns our Certificate for cert-manager, or nil.
func (fc *fakeCluster) certificateRequest() *unstructured.Unstructured {
	request := &unstructured.Unstructured{}
	request.SetGroupVersionKind(manifests.CertificateKind)
	err := fc.raw.Get(context.Background(), client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-cluster"}, request)
	if apierrors.IsNotFound(err) {
		return nil
	}
	fc.must(err)
	return request
}

// issue does what cert-manager would.
func (fc *fakeCluster) issue() map[string][]byte {
	fc.t.Helper()
	request := fc.certificateRequest()
	if request == nil {
		fc.t.Fatal("cert-manager is asked for nothing")
	}
	name, _, _ := unstructured.NestedString(request.Object, "spec", "secretName")
	labels, _, _ := unstructured.NestedStringMap(request.Object, "spec", "secretTemplate", "labels")
	issuer, _, _ := unstructured.NestedStringMap(request.Object, "spec", "issuerRef")
	data := fc.provide(name)
	secret := fc.secret("issued")
	secret.Labels = labels
	secret.Annotations = map[string]string{
		"cert-manager.io/issuer-name": issuer["name"], "cert-manager.io/issuer-kind": issuer["kind"], "cert-manager.io/issuer-group": issuer["group"],
	}
	fc.update(secret)
	return data
}

// From the managed authority to cert-manager, a renewal by it, and back.
func TestCertManager(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.certs.delay = 1
	before := fc.mounted()
	useCertManager(fc)
	fc.reconcileRounds(r, 3)
	c := fc.condition(v1alpha1.ConditionCertificatesValid)
	if c.Reason != v1alpha1.ReasonProgressing || !strings.Contains(c.Message, "cert-manager has not issued") || !fc.mounted()[0].Equal(before[0]) {
		t.Errorf("before it is issued: %+v", c)
	}
	issuer, _, _ := unstructured.NestedStringMap(fc.certificateRequest().Object, "spec", "issuerRef")
	names, _, _ := unstructured.NestedStringSlice(fc.certificateRequest().Object, "spec", "dnsNames")
	if issuer["name"] != "ours" || len(names) == 0 || names[0] != "metrics-serving-cluster.operator-ns.svc" {
		t.Errorf("asked %v for %v", issuer, names)
	}
	for range 2 {
		data := fc.issue()
		fc.reconcileUntil(r, func() bool {
			return fc.isReady() && fc.bundles()["v1.metrics.k8s.io"].Equal(servingcert.ParseBundle(data["ca.crt"]))
		})
	}
	managed(fc)
	fc.reconcileUntil(r, func() bool {
		return fc.isReady() && fc.secret("ca").Name != "" && len(fc.bundles()["v1.metrics.k8s.io"]) == 1
	})
	if fc.certificateRequest() != nil || fc.secret("issued").Name != "" {
		t.Errorf("cert-manager is still asked: %v %q", fc.certificateRequest(), fc.secret("issued").Name)
	}
}

// After a change of the issuer the backend is not ready until that one has issued the certificate; the previous one, or
// cert-manager's temporary certificate, is not taken for it.
func TestCertManagerIssuerChanged(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*fakeCluster){
		"the previous certificate": func(*fakeCluster) {},
		"a temporary certificate": func(fc *fakeCluster) {
			fc.issue()
			secret := fc.secret("issued")
			delete(secret.Data, "ca.crt")
			secret.Annotations = map[string]string{"cert-manager.io/issuer-name": "", "cert-manager.io/issuer-kind": "", "cert-manager.io/issuer-group": ""}
			fc.update(secret)
		},
	}
	for name, written := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc, r := ready(t)
			useCertManager(fc)
			mustReconcile(t, r)
			before := fc.issue()
			fc.reconcileUntil(r, func() bool {
				return fc.isReady() && fc.bundles()["v1.metrics.k8s.io"].Equal(servingcert.ParseBundle(before["ca.crt"]))
			})
			fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
				spec.Serving.Certificates.CertManager.IssuerRef.Kind = "ClusterIssuer"
			})
			written(fc)
			fc.reconcileRounds(r, 3)
			fc.wantCondition(v1alpha1.ConditionCertificatesValid, "False", v1alpha1.ReasonProgressing, "has not issued the certificate of ClusterIssuer ours yet")
			fc.wantCondition(v1alpha1.ConditionReady, "Unknown", v1alpha1.ReasonProgressing)
			if string(fc.secret("tls").Data["tls.crt"]) != string(before["tls.crt"]) {
				t.Error("pods did not keep the previous certificate")
			}
			after := fc.issue()
			fc.reconcileUntil(r, func() bool {
				return fc.isReady() && fc.bundles()["v1.metrics.k8s.io"].Equal(servingcert.ParseBundle(after["ca.crt"]))
			})
		})
	}
}

// An issuer without authority cannot be used.
func TestCertManagerWithoutAuthority(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	useCertManager(fc)
	mustReconcile(t, r)
	fc.issue()
	secret := fc.secret("issued")
	delete(secret.Data, "ca.crt")
	fc.update(secret)
	mustReconcile(t, r)
	fc.wantCondition(v1alpha1.ConditionCertificatesValid, "", v1alpha1.ReasonCertificateInvalid, "ACME")
}

// A deletion, and a move to another implementation, delete the Certificate before the
// Secret that cert-manager would create again, also in a process that never requested it.
func TestCertManagerRequestIsDeleted(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		happen func(*fakeCluster)
		done   func(*fakeCluster) bool
	}{
		"deleted": {happen: func(fc *fakeCluster) { fc.delete(fc.backend()) }, done: (*fakeCluster).isGone},
		"another implementation": {
			happen: moveToExisting,
			done:   func(fc *fakeCluster) bool { return fc.isReady() && !fc.deployed() && len(fc.pods()) == 0 },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "beside another implementation", besideOther)
			r := fc.reconciler()
			useCertManager(fc)
			mustReconcile(t, r)
			fc.issue()
			fc.reconcileUntil(r, fc.isReady)
			tc.happen(fc)
			r = fc.reconciler()
			fc.reconcileUntil(r, func() bool { return tc.done(fc) })
			mustReconcile(t, r)
			if fc.certificateRequest() != nil || fc.secret("issued").Name != "" {
				t.Errorf("left a Certificate or its Secret behind: %v %q", fc.certificateRequest(), fc.secret("issued").Name)
			}
		})
	}
}

// Without cert-manager its mode reports that, and everything else continues.
func TestCertManagerMissing(t *testing.T) {
	t.Parallel()
	missing := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if o.GetObjectKind().GroupVersionKind().Kind == manifests.CertificateKind.Kind {
			return &meta.NoKindMatchError{GroupKind: manifests.CertificateKind.GroupKind(), SearchedVersions: []string{"v1"}}
		}
		return c.Get(ctx, key, o, opts...)
	}}
	fc, r := ready(t, missing)
	useCertManager(fc)
	mustReconcile(t, r)
	for _, kind := range []string{v1alpha1.ConditionCertificatesValid, v1alpha1.ConditionStalled} {
		fc.wantCondition(kind, "", v1alpha1.ReasonCertManagerMissing, "install it")
	}
	fc.wantCondition(v1alpha1.ConditionAvailable, "True", "")
	fc.delete(fc.backend())
	fc.reconcileUntil(r, fc.isGone)
}

// A Certificate that cannot be read or deleted, since cert-manager's own kind or webhook is broken, keeps neither a
// deletion nor a change of the mode for longer than a minute. Its Secret stays with it: cert-manager would issue it again.
func TestCertManagerBroken(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ get, repaired bool }{
		"get":                   {get: true},
		"delete":                {},
		"get, then repaired":    {get: true, repaired: true},
		"delete, then repaired": {repaired: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc, _ := ready(t)
			broken, failures, reissued := false, 0, 0
			r := fc.reconciler(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if broken && o.GetObjectKind().GroupVersionKind() == manifests.CertificateKind && tc.get {
						failures++
						return apierrors.NewInternalError(errors.New("conversion webhook failed"))
					}
					return c.Get(ctx, key, o, opts...)
				},
				Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
					if broken && o.GetObjectKind().GroupVersionKind() == manifests.CertificateKind {
						failures++
						return apierrors.NewForbidden(schema.GroupResource{Resource: "certificates"}, o.GetName(), errors.New("admission webhook failed"))
					}
					return c.Delete(ctx, o, opts...)
				},
			})
			until := func(done func() bool) {
				fc.reconcileUntil(r, func() bool {
					if fc.certificateRequest() != nil && fc.secret("issued").Name == "" {
						reissued++
						fc.issue()
					}
					return done()
				})
			}
			useCertManager(fc)
			mustReconcile(t, r)
			fc.issue()
			fc.reconcileUntil(r, fc.isReady)
			broken = true
			managed(fc)
			until(func() bool {
				return fc.isReady() && fc.secret("ca").Name != "" && len(fc.bundles()["v1.metrics.k8s.io"]) == 1
			})
			before := failures
			for range 9 {
				fc.clock.Step(time.Minute)
				mustReconcile(t, r)
			}
			if tries := failures - before; tries < 1 || tries > 2 {
				t.Errorf("tried %d times in nine minutes, want once every five", tries)
			}
			if tc.repaired {
				broken = false
				fc.clock.Step(5 * time.Minute)
				mustReconcile(t, r)
			} else {
				fc.delete(fc.backend())
				until(fc.isGone)
			}
			if stays := fc.certificateRequest() != nil; stays == tc.repaired || stays != (fc.secret("issued").Name != "") || reissued > 0 {
				t.Errorf("Certificate left: %t, its Secret %q, issued again %d times", stays, fc.secret("issued").Name, reissued)
			}
		})
	}
}
