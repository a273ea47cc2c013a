// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

func rotate(token string) func(*world) {
	return func(w *world) {
		w.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Certificates.Rotate = token })
	}
}

func useSecret(name string) func(*world) {
	return func(w *world) {
		w.change(func(spec *v1alpha1.MetricsBackendSpec) {
			spec.Serving.Certificates = v1alpha1.CertificatesSpec{
				Mode: v1alpha1.CertificatesSecret, Secret: &v1alpha1.CertificateSecret{Name: name},
			}
		})
	}
}

func managed(w *world) {
	w.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Certificates = v1alpha1.CertificatesSpec{} })
}

// provide writes a Secret of the user's with a new authority and a certificate.
func (w *world) provide(name string) map[string][]byte {
	w.t.Helper()
	issuer := servingcert.NewIssuer(w.clock)
	authority, err := issuer.Authority("user")
	w.must(err)
	leaf, err := issuer.Leaf(authority, []string{"metrics-serving-cluster.operator-ns.svc"})
	w.must(err)
	data := map[string][]byte{"tls.crt": leaf.Certificate, "tls.key": leaf.Key, "ca.crt": authority.Certificate}
	w.writeSecret(name, data)
	return data
}

func (w *world) writeSecret(name string, data map[string][]byte) {
	w.t.Helper()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: systemNamespace, Name: name}
	if w.raw.Get(context.Background(), key, secret) == nil {
		secret.Data = data
		w.update(secret)
		return
	}
	secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: data}
	w.create(secret)
}

// bundles are the authorities of each APIService and of the Secret that pods mount.
func (w *world) bundles() map[string]servingcert.Bundle {
	all := map[string]servingcert.Bundle{"Secret": servingcert.ParseBundle(w.secret("tls").Data["ca.crt"])}
	for _, service := range w.apiServices() {
		all[service.Name] = servingcert.ParseBundle(service.Spec.CABundle)
	}
	return all
}

// rotated tells whether everything is of one authority, and not of the former.
func (w *world) rotated(former servingcert.Bundle) bool {
	if !w.isReady() {
		return false
	}
	for _, bundle := range w.bundles() {
		if len(bundle) != 1 || bundle.Equal(former) {
			return false
		}
	}
	return true
}

// The steps of a rotation, in order, and that nothing is rolled for it.
func TestRotation(t *testing.T) {
	t.Parallel()
	w, r := ready(t)
	w.certs.delay = 3
	former := servingcert.ParseBundle(w.secret("ca").Data["tls.crt"])
	before := w.mounted()
	pods := w.pods()
	rotate("2026-11-01")(w)
	var steps []string
	note := func(step string) {
		if len(steps) == 0 || steps[len(steps)-1] != step {
			steps = append(steps, step)
		}
	}
	w.settle(r, func() bool {
		c := w.condition(v1alpha1.ConditionCertificatesValid)
		if ready := w.condition(v1alpha1.ConditionReady); ready.Status == "True" && c.Reason == v1alpha1.ReasonRotating {
			t.Error("ready while it is rotating")
		}
		authorities, leaf, loaded := 1, "old leaf", "by no pod"
		for _, bundle := range w.bundles() {
			authorities = max(authorities, len(bundle))
		}
		if !w.mounted()[0].Equal(before[0]) {
			leaf = "new leaf"
		}
		serving := 0
		for _, p := range w.pods() {
			if w.certs.served[p.Name][0].Equal(w.mounted()[0]) {
				serving++
			}
		}
		if serving == len(w.pods()) {
			loaded = "by each pod"
		}
		note(strings.Join([]string{map[int]string{1: "one authority", 2: "two authorities"}[authorities], leaf, loaded, c.Reason}, ", "))
		return w.rotated(former)
	})
	want := []string{
		"one authority, old leaf, by each pod, Succeeded",
		"two authorities, old leaf, by each pod, Rotating",
		"two authorities, new leaf, by no pod, Rotating",
		"two authorities, new leaf, by each pod, Rotating",
		"one authority, new leaf, by each pod, Rotating",
		"one authority, new leaf, by each pod, Succeeded",
	}
	if diff := gocmp.Diff(want, steps); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !slices.EqualFunc(pods, w.pods(), func(a, b corev1.Pod) bool { return a.Name == b.Name }) {
		t.Error("pods were replaced")
	}
	if ca := w.secret("ca"); len(ca.Data) != 2 || ca.Annotations[v1alpha1.AnnotationRotated] != "2026-11-01" {
		t.Errorf("the Secret of the authority has %d keys, annotations %v", len(ca.Data), ca.Annotations)
	}
}

// Whatever lags, is down or stuck, no kube-apiserver ever refuses a pod.
func TestRotationWaits(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		hinder, help func(*world)
		want         string
		reason       string
	}{
		"a kube-apiserver lags": {
			hinder: func(w *world) { w.replicas[1].lags = true }, help: func(w *world) { w.replicas[1].lags = false },
			want: "192.0.2.2:6443 does not have the new authority",
		},
		"a kubelet does not bring the Secret": {
			hinder: func(w *world) { w.certs.stuck["pod-001"] = true }, help: func(w *world) { clear(w.certs.stuck) },
			want: "delete the pod", reason: v1alpha1.ReasonCertificateMismatch,
		},
		"pods do not answer": {
			hinder: func(w *world) { w.mute = true }, help: func(w *world) { w.mute = false },
			want: "was not seen to serve the new certificate yet",
		},
	}
	for name, tc := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := ready(t)
			former := servingcert.ParseBundle(w.secret("ca").Data["tls.crt"])
			tc.hinder(w)
			rotate("now")(w)
			w.rounds(r, 100)
			w.wantCondition(v1alpha1.ConditionCertificatesValid, "", cmp.Or(tc.reason, v1alpha1.ReasonRotating), tc.want)
			if got := len(w.bundles()["v1.metrics.k8s.io"]); got != 2 {
				t.Errorf("%d authorities, want the former one and the new one", got)
			}
			tc.help(w)
			w.settle(r, func() bool { return w.rotated(former) })
		})
	}
}

// The same text rotates once, another one again, and none not at all. A backend that is
// created with a text has nothing to rotate.
func TestRotateIsHeededOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newBackend(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Certificates.Rotate = "first" }))
	r := w.reconciler()
	mustReconcile(t, r)
	mustReconcile(t, r)
	for _, step := range []struct {
		token   string
		rotates bool
	}{{"first", false}, {"a", true}, {"a", false}, {"", false}, {"a", false}, {"b", true}} {
		former := servingcert.ParseBundle(w.secret("ca").Data["tls.crt"])
		rotate(step.token)(w)
		w.settle(r, w.isReady)
		w.rounds(r, 10)
		w.settle(r, w.isReady)
		if now := servingcert.ParseBundle(w.secret("ca").Data["tls.crt"]); now.Equal(former) == step.rotates {
			t.Errorf("%q rotated: %t, want %t", step.token, !now.Equal(former), step.rotates)
		}
	}
}

// Time alone renews the certificate and, in its last years, the authority; and what
// expired while no operator ran is replaced.
func TestRenewal(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	cases := map[string]struct {
		after           time.Duration
		leaf, authority bool
		broken          bool
		status, reason  string
	}{
		"a month":                 {after: 30 * day},
		"in the last third":       {after: 70 * day, leaf: true},
		"the certificate expired": {after: 100 * day, leaf: true, broken: true, reason: v1alpha1.ReasonCertificateExpired},
		"the authority ages":      {after: 3300 * day, leaf: true, authority: true, broken: true, reason: v1alpha1.ReasonCertificateExpired},
		"all expired":             {after: 4000 * day, leaf: true, authority: true, broken: true, reason: v1alpha1.ReasonCertificateExpired},
	}
	for name, tc := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := ready(t)
			caKey := w.secret("ca").Data["tls.key"]
			ca, leaf, key := servingcert.ParseBundle(w.secret("ca").Data["tls.crt"]), w.mounted(), w.secret("tls").Data["tls.key"]
			w.clock.Step(tc.after)
			w.certs.untrusted = tc.broken
			r := w.reconciler()
			mustReconcile(t, r)
			if c := w.condition(v1alpha1.ConditionCertificatesValid); tc.reason != "" && c.Reason != tc.reason {
				t.Errorf("at first %s %q, want %s", c.Reason, c.Message, tc.reason)
			}
			w.settle(r, func() bool { return w.isReady() && w.certs.served[w.pods()[0].Name][0].Equal(w.mounted()[0]) })
			w.certs.untrusted = false
			for range 20 {
				mustReconcile(t, r)
				w.step()
				w.watchTrust("afterwards")
			}
			w.settle(r, w.isReady)
			now := servingcert.ParseBundle(w.secret("ca").Data["tls.crt"])
			if got := !w.mounted()[0].Equal(leaf[0]); got != tc.leaf {
				t.Errorf("certificate renewed: %t, want %t", got, tc.leaf)
			}
			if got := string(w.secret("tls").Data["tls.key"]) != string(key); got != tc.leaf {
				t.Errorf("its key renewed: %t, want %t", got, tc.leaf)
			}
			if got := !now.Equal(ca); got != tc.authority {
				t.Errorf("authority renewed: %t, want %t", got, tc.authority)
			}
			if got := !bytes.Equal(w.secret("ca").Data["tls.key"], caKey); got != tc.authority {
				t.Errorf("the authority's key renewed: %t, want %t", got, tc.authority)
			}
			for holder, got := range w.bundles() {
				if !got.Equal(now) {
					t.Errorf("%d authorities are in %s in the end", len(got), holder)
				}
			}
		})
	}
}

// Secrets that are lost, one by one and together, are made anew; what pods serve
// stays trusted.
func TestLostSecrets(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string][]string{"the certificate": {"tls"}, "the authority": {"ca"}, "both": {"tls", "ca"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := ready(t)
			w.certs.delay = 2
			for _, name := range lost {
				w.delete(w.secret(name))
			}
			w.settle(r, func() bool {
				return w.isReady() && len(w.bundles()["v1.metrics.k8s.io"]) == 1 && len(w.mounted()) > 0 &&
					servingcert.NewIssuer(w.clock).Verify(w.mounted(), w.bundles()["v1.metrics.k8s.io"], "") == nil
			})
		})
	}
}

// Kube-apiservers that cannot be asked hold up for a stated time only, and an authority
// that comes back is as new to them as at first.
func TestAuthorityComesBack(t *testing.T) {
	t.Parallel()
	w, r := ready(t)
	w.provide("a")
	w.provide("b")
	var took []time.Duration
	for _, change := range []func(*world){useSecret("a"), useSecret("b"), useSecret("a"), managed, rotate("now")} {
		// One is down, or, every other time, not even the addresses can be read.
		w.unreachable = len(took)%2 == 1
		w.replicas[1].down = !w.unreachable
		before, begun := w.mounted()[0], w.clock.Now()
		change(w)
		w.settle(r, func() bool { return !w.mounted()[0].Equal(before) })
		took = append(took, w.clock.Since(begun))
		w.replicas[1].down, w.unreachable = false, false
		w.settle(r, func() bool { return w.isReady() && len(w.bundles()["v1.metrics.k8s.io"]) == 1 })
	}
	for _, d := range took {
		if d < discoverySoak || d > 2*discoverySoak {
			t.Errorf("took %v, want about %s each", took, discoverySoak)
		}
	}
}
