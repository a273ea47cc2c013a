// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

// What is wrong with a Secret of the user's is told; what is served goes on, and
// the operator goes on by itself once the Secret is right.
func TestProvidedCertificateIsWrong(t *testing.T) {
	t.Parallel()
	change := func(change func(data, other map[string][]byte)) func(*world) {
		return func(w *world) {
			other, data := w.provide("other"), w.provide("mine")
			change(data, other)
			w.writeSecret("mine", data)
		}
	}
	cases := map[string]struct {
		wrong        func(*world)
		secret       string
		reason, want string
	}{
		"it does not exist": {wrong: func(*world) {}, reason: v1alpha1.ReasonSecretMissing, want: "does not exist"},
		"it lacks a key": {
			wrong:  change(func(data, _ map[string][]byte) { delete(data, "ca.crt") }),
			reason: v1alpha1.ReasonCertificateInvalid, want: "lacks ca.crt",
		},
		"its key is another": {
			wrong:  change(func(data, other map[string][]byte) { data["tls.key"] = other["tls.key"] }),
			reason: v1alpha1.ReasonCertificateMismatch, want: "does not match",
		},
		"it has expired": {
			wrong: func(w *world) {
				w.provide("mine")
				w.clock.Step(servingcert.LeafLifetime + time.Hour)
				w.certs.untrusted = true // the managed one has, too
			},
			reason: v1alpha1.ReasonCertificateExpired, want: "expired on 2027-01-30",
		},
		"it is the operator's own": {
			wrong: func(*world) {}, secret: "metrics-serving-cluster-tls",
			reason: v1alpha1.ReasonInvalid, want: "give yours another name",
		},
	}
	for name, tc := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := ready(t)
			before := w.mounted()
			tc.wrong(w)
			if tc.secret == "" {
				tc.secret = "mine"
			}
			useSecret(tc.secret)(w)
			w.rounds(r, 5)
			for _, kind := range []string{v1alpha1.ConditionCertificatesValid, v1alpha1.ConditionReady} {
				w.wantCondition(kind, "False", tc.reason, tc.want)
			}
			w.wantCondition(v1alpha1.ConditionStalled, "", tc.reason)
			if !w.isRegistered(v1) || !w.certs.untrusted && !w.mounted()[0].Equal(before[0]) {
				t.Error("what was served did not stay")
			}
			right := w.provide("right")
			useSecret("right")(w)
			w.settle(r, func() bool {
				return w.isReady() && w.bundles()["v1.metrics.k8s.io"].Equal(servingcert.ParseBundle(right["ca.crt"]))
			})
			if w.secret("ca").Name != "" {
				t.Error("the managed authority is still there")
			}
		})
	}
}

// A backend that begins with a Secret waits for it, and says so.
func TestProvidedCertificateFromTheStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newBackend(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.Certificates = v1alpha1.CertificatesSpec{
			Mode: v1alpha1.CertificatesSecret, Secret: &v1alpha1.CertificateSecret{Name: "mine"},
		}
	}))
	r := w.reconciler()
	w.rounds(r, 5)
	if c := w.condition(v1alpha1.ConditionStalled); c.Reason != v1alpha1.ReasonSecretMissing || len(w.pods()) > 0 {
		t.Errorf("%d pods, Stalled is %+v", len(w.pods()), c)
	}
	data := w.provide("mine")
	w.settle(r, w.isReady)
	if got := w.secret("tls").Data["tls.crt"]; string(got) != string(data["tls.crt"]) {
		t.Error("another certificate is served")
	}
}

// The user's Secret is not ours, even when it has our label.
func TestProvidedSecretStays(t *testing.T) {
	t.Parallel()
	w, r := ready(t)
	w.provide("mine")
	key := client.ObjectKey{Namespace: systemNamespace, Name: "mine"}
	mine := &corev1.Secret{}
	w.get(key, mine)
	mine.Labels = map[string]string{v1alpha1.LabelBackend: backendName}
	w.update(mine)
	useSecret("mine")(w)
	w.rounds(r, 5)
	w.get(key, mine)
	w.settle(r, w.isReady)
}

// A certificate that nobody renews is told of, two weeks before its end; the backend is
// ready all the same, since nothing is wrong yet. One that the user renews, with another
// authority, is served as soon as clients trust it.
func TestCertificateExpiring(t *testing.T) {
	w, r := ready(t)
	w.provide("mine")
	useSecret("mine")(w)
	w.settle(r, w.isReady)
	w.settle(r, func() bool { return len(w.bundles()["v1.metrics.k8s.io"]) == 1 })
	expires := w.mounted()[0].NotAfter
	recorded := func() float64 { return testutil.ToFloat64(certificateGauge.WithLabelValues(backendName)) }
	w.clock.SetTime(expires.Add(-20 * 24 * time.Hour))
	mustReconcile(t, r)
	if c := w.condition(v1alpha1.ConditionCertificatesValid); c.Status != "True" || recorded() != float64(expires.Unix()) {
		t.Errorf("20 days before: expires at %v, %+v", recorded(), c)
	}
	w.clock.Step(7 * 24 * time.Hour)
	mustReconcile(t, r)
	c := w.condition(v1alpha1.ConditionCertificatesValid)
	if c.Status != "False" || c.Reason != v1alpha1.ReasonCertificateExpiring || !strings.Contains(c.Message, "operator-ns/mine") {
		t.Errorf("13 days before: %+v", c)
	}
	w.wantCondition(v1alpha1.ConditionReady, "True", "")
	w.certs.delay = 2
	for range 2 {
		data := w.provide("mine")
		mustReconcile(t, r)
		w.settle(r, func() bool {
			return w.isReady() && w.condition(v1alpha1.ConditionCertificatesValid).Reason == v1alpha1.ReasonSucceeded &&
				string(w.secret("tls").Data["tls.crt"]) == string(data["tls.crt"]) &&
				w.bundles()["v1.metrics.k8s.io"].Equal(servingcert.ParseBundle(data["ca.crt"]))
		})
	}
}

func useCertManager(w *world) {
	w.change(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.Certificates = v1alpha1.CertificatesSpec{
			Mode:        v1alpha1.CertificatesCertManager,
			CertManager: &v1alpha1.CertManagerSpec{IssuerRef: v1alpha1.IssuerReference{Name: "ours", Kind: "Issuer", Group: "cert-manager.io"}},
		}
	})
}

// certificateRequest is what cert-manager is asked for; nil when it is not.
func (w *world) certificateRequest() *unstructured.Unstructured {
	request := &unstructured.Unstructured{}
	request.SetGroupVersionKind(certificateKind)
	err := w.raw.Get(context.Background(), client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-cluster"}, request)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return request
}

// issue does what cert-manager would.
func (w *world) issue() map[string][]byte {
	w.t.Helper()
	request := w.certificateRequest()
	if request == nil {
		w.t.Fatal("cert-manager is asked for nothing")
	}
	name, _, _ := unstructured.NestedString(request.Object, "spec", "secretName")
	labels, _, _ := unstructured.NestedStringMap(request.Object, "spec", "secretTemplate", "labels")
	data := w.provide(name)
	secret := w.secret("issued")
	secret.Labels = labels
	w.update(secret)
	return data
}

// From the managed authority to cert-manager, a renewal by it, and back.
func TestCertManager(t *testing.T) {
	t.Parallel()
	w, r := ready(t)
	w.certs.delay = 1
	before := w.mounted()
	useCertManager(w)
	w.rounds(r, 3)
	c := w.condition(v1alpha1.ConditionCertificatesValid)
	if c.Reason != v1alpha1.ReasonProgressing || !strings.Contains(c.Message, "cert-manager has not issued") || !w.mounted()[0].Equal(before[0]) {
		t.Errorf("before it is issued: %+v", c)
	}
	issuer, _, _ := unstructured.NestedStringMap(w.certificateRequest().Object, "spec", "issuerRef")
	names, _, _ := unstructured.NestedStringSlice(w.certificateRequest().Object, "spec", "dnsNames")
	if issuer["name"] != "ours" || len(names) == 0 || names[0] != "metrics-serving-cluster.operator-ns.svc" {
		t.Errorf("asked %v for %v", issuer, names)
	}
	for range 2 {
		data := w.issue()
		w.settle(r, func() bool {
			return w.isReady() && w.bundles()["v1.metrics.k8s.io"].Equal(servingcert.ParseBundle(data["ca.crt"]))
		})
	}
	managed(w)
	w.settle(r, func() bool {
		return w.isReady() && w.secret("ca").Name != "" && len(w.bundles()["v1.metrics.k8s.io"]) == 1
	})
	if w.certificateRequest() != nil || w.secret("issued").Name != "" {
		t.Errorf("cert-manager is still asked: %v %q", w.certificateRequest(), w.secret("issued").Name)
	}
}

// An issuer that gives no authority cannot be used.
func TestCertManagerWithoutAuthority(t *testing.T) {
	t.Parallel()
	w, r := ready(t)
	useCertManager(w)
	mustReconcile(t, r)
	w.issue()
	secret := w.secret("issued")
	delete(secret.Data, "ca.crt")
	w.update(secret)
	mustReconcile(t, r)
	w.wantCondition(v1alpha1.ConditionCertificatesValid, "", v1alpha1.ReasonCertificateInvalid, "ACME")
}

// A deletion takes the Certificate with it, before the Secret that cert-manager would
// make again, and so does who takes another implementation: also in a process that
// never asked for it.
func TestCertManagerIsNotAskedAnyMore(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		happen func(*world)
		done   func(*world) bool
	}{
		"deleted": {happen: func(w *world) { w.delete(w.backend()) }, done: (*world).isGone},
		"another implementation": {
			happen: toExisting,
			done:   func(w *world) bool { return w.isReady() && !w.deployed() && len(w.pods()) == 0 },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := prepared(t, "beside theirs", besideTheirs)
			r := w.reconciler()
			useCertManager(w)
			mustReconcile(t, r)
			w.issue()
			w.settle(r, w.isReady)
			tc.happen(w)
			r = w.reconciler()
			w.settle(r, func() bool { return tc.done(w) })
			mustReconcile(t, r)
			if w.certificateRequest() != nil || w.secret("issued").Name != "" {
				t.Errorf("left a Certificate or its Secret behind: %v %q", w.certificateRequest(), w.secret("issued").Name)
			}
		})
	}
}

// Without cert-manager its mode says so, and everything else goes on.
func TestCertManagerMissing(t *testing.T) {
	t.Parallel()
	missing := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if o.GetObjectKind().GroupVersionKind().Kind == certificateKind.Kind {
			return &meta.NoKindMatchError{GroupKind: certificateKind.GroupKind(), SearchedVersions: []string{"v1"}}
		}
		return c.Get(ctx, key, o, opts...)
	}}
	w, r := ready(t, missing)
	useCertManager(w)
	mustReconcile(t, r)
	for _, kind := range []string{v1alpha1.ConditionCertificatesValid, v1alpha1.ConditionStalled} {
		w.wantCondition(kind, "", v1alpha1.ReasonCertManagerMissing, "install it")
	}
	w.wantCondition(v1alpha1.ConditionAvailable, "True", "")
	w.delete(w.backend())
	w.settle(r, w.isGone)
}
