// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/google/go-cmp/cmp"

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
		w.must(w.raw.Update(context.Background(), secret))
		return
	}
	secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: data}
	w.must(w.raw.Create(context.Background(), secret))
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
	w, r := ready(t, interceptor.Funcs{})
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
	if diff := cmp.Diff(want, steps); diff != "" {
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
	cases := map[string]struct {
		hinder, help func(*world)
		want         string
		reason       string
		stays        int // authorities
	}{
		"a kube-apiserver lags": {
			hinder: func(w *world) { w.replicas[1].lags = true }, help: func(w *world) { w.replicas[1].lags = false },
			want: "192.0.2.2:6443 does not have the new authority", stays: 2,
		},
		"a kubelet does not bring the Secret": {
			hinder: func(w *world) { w.certs.stuck["pod-001"] = true }, help: func(w *world) { clear(w.certs.stuck) },
			want: "delete the pod", reason: v1alpha1.ReasonCertificateMismatch, stays: 2,
		},
		"pods do not answer": {
			hinder: func(w *world) { w.mute = true }, help: func(w *world) { w.mute = false },
			want: "was not seen to serve the new certificate yet", stays: 2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := ready(t, interceptor.Funcs{})
			former := servingcert.ParseBundle(w.secret("ca").Data["tls.crt"])
			tc.hinder(w)
			rotate("now")(w)
			for range 100 {
				_, err := reconcileOnce(t, r)
				w.must(err)
				w.watchInvariant("while hindered")
				w.step()
			}
			c := w.condition(v1alpha1.ConditionCertificatesValid)
			if tc.reason == "" {
				tc.reason = v1alpha1.ReasonRotating
			}
			if !strings.Contains(c.Message, tc.want) || c.Reason != tc.reason {
				t.Errorf("got %s %q, want %s with %q", c.Reason, c.Message, tc.reason, tc.want)
			}
			if got := len(w.bundles()["v1.metrics.k8s.io"]); got != tc.stays {
				t.Errorf("%d authorities, want %d", got, tc.stays)
			}
			tc.help(w)
			w.settle(r, func() bool { return w.rotated(former) })
		})
	}
}

// Kube-apiservers that cannot be asked hold up for a stated time only.
func TestRotationWithoutConfirmation(t *testing.T) {
	for name, hinder := range map[string]func(*world){
		"one is down":          func(w *world) { w.replicas[1].down = true },
		"addresses are unread": func(w *world) { w.unreachable = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := ready(t, interceptor.Funcs{})
			former, before, begun := servingcert.ParseBundle(w.secret("ca").Data["tls.crt"]), w.mounted(), w.clock.Now()
			hinder(w)
			rotate("now")(w)
			w.settle(r, func() bool { return !w.mounted()[0].Equal(before[0]) })
			if took := w.clock.Since(begun); took < soak || took > 2*soak {
				t.Errorf("took %s, want about %s", took, soak)
			}
			w.settle(r, func() bool { return w.rotated(former) })
		})
	}
}

// The same text rotates once, another one again, and none not at all.
func TestRotateIsHeededOnce(t *testing.T) {
	w, r := ready(t, interceptor.Funcs{})
	for _, step := range []struct {
		token   string
		rotates bool
	}{{"a", true}, {"a", false}, {"", false}, {"a", false}, {"b", true}} {
		former := servingcert.ParseBundle(w.secret("ca").Data["tls.crt"])
		rotate(step.token)(w)
		w.settle(r, w.isReady)
		for range 10 {
			mustReconcile(t, r)
			w.step()
		}
		w.settle(r, w.isReady)
		if now := servingcert.ParseBundle(w.secret("ca").Data["tls.crt"]); now.Equal(former) == step.rotates {
			t.Errorf("%q rotated: %t, want %t", step.token, !now.Equal(former), step.rotates)
		}
	}
}

// A backend that is created with a token has nothing to rotate.
func TestFirstAuthorityHeedsTheToken(t *testing.T) {
	w := newWorld(t, newBackend(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Certificates.Rotate = "first" }))
	r := w.reconciler(interceptor.Funcs{})
	mustReconcile(t, r)
	mustReconcile(t, r)
	first := servingcert.ParseBundle(w.secret("ca").Data["tls.crt"])
	w.settle(r, w.isReady)
	if now := servingcert.ParseBundle(w.secret("ca").Data["tls.crt"]); len(first) != 1 || !now.Equal(first) {
		t.Error("the first authority was replaced")
	}
}

// Time alone renews the certificate and, in its last years, the authority; and what
// expired while no operator ran is replaced.
func TestRenewal(t *testing.T) {
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
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := ready(t, interceptor.Funcs{})
			ca, leaf := servingcert.ParseBundle(w.secret("ca").Data["tls.crt"]), w.mounted()
			w.clock.Step(tc.after)
			w.certs.untrusted = tc.broken
			r := w.reconciler(interceptor.Funcs{})
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
			if got := !now.Equal(ca); got != tc.authority {
				t.Errorf("authority renewed: %t, want %t", got, tc.authority)
			}
			if got := w.bundles()["v1.metrics.k8s.io"]; !got.Equal(now) {
				t.Errorf("%d authorities are trusted in the end", len(got))
			}
		})
	}
}

// Secrets that are lost, one by one and together, are made anew; what pods serve
// stays trusted.
func TestLostSecrets(t *testing.T) {
	for name, lost := range map[string][]string{"the certificate": {"tls"}, "the authority": {"ca"}, "both": {"tls", "ca"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := ready(t, interceptor.Funcs{})
			w.certs.delay = 2
			for _, name := range lost {
				w.must(w.raw.Delete(context.Background(), w.secret(name)))
			}
			w.settle(r, func() bool {
				return w.isReady() && len(w.bundles()["v1.metrics.k8s.io"]) == 1 && len(w.mounted()) > 0 &&
					servingcert.NewIssuer(w.clock).Verify(w.mounted(), w.bundles()["v1.metrics.k8s.io"], "") == nil
			})
		})
	}
}

// An authority that comes back is as new to the kube-apiservers as at first.
func TestAuthorityComesBack(t *testing.T) {
	w, r := ready(t, interceptor.Funcs{})
	w.provide("a")
	w.provide("b")
	var took []time.Duration
	for _, name := range []string{"a", "b", "a"} {
		w.replicas[1].down = true
		before, begun := w.mounted()[0], w.clock.Now()
		useSecret(name)(w)
		w.settle(r, func() bool { return !w.mounted()[0].Equal(before) })
		took = append(took, w.clock.Since(begun))
		w.replicas[1].down = false
		w.settle(r, func() bool { return w.isReady() && len(w.bundles()["v1.metrics.k8s.io"]) == 1 })
	}
	for _, d := range took {
		if d < soak || d > 2*soak {
			t.Errorf("took %v, want about %s each", took, soak)
		}
	}
}
