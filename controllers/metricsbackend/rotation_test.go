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
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

func rotate(token string) func(*fakeCluster) {
	return func(fc *fakeCluster) {
		backend := fc.backend()
		metav1.SetMetaDataAnnotation(&backend.ObjectMeta, v1alpha1.AnnotationRotate, token)
		fc.update(backend)
	}
}

func useSecret(name string) func(*fakeCluster) {
	return func(fc *fakeCluster) {
		fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
			spec.Serving.Certificates = v1alpha1.CertificatesSpec{
				Mode: v1alpha1.CertificatesSecret, SecretRef: &v1alpha1.SecretReference{Name: name},
			}
		})
	}
}

func managed(fc *fakeCluster) {
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Certificates = v1alpha1.CertificatesSpec{} })
}

// provide writes a Secret of the user with a new authority and certificate.
func (fc *fakeCluster) provide(name string) map[string][]byte {
	fc.t.Helper()
	issuer := servingcert.NewIssuer(fc.clock)
	authority, err := issuer.Authority("user")
	fc.must(err)
	leaf, err := issuer.Leaf(authority, []string{"metrics-serving-cluster.operator-ns.svc"})
	fc.must(err)
	data := map[string][]byte{"tls.crt": leaf.Certificate, "tls.key": leaf.Key, "ca.crt": authority.Certificate}
	secret := &corev1.Secret{}
	if fc.raw.Get(context.Background(), client.ObjectKey{Namespace: systemNamespace, Name: name}, secret) == nil {
		secret.Data = data
		fc.update(secret)
		return data
	}
	fc.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name}, Data: data})
	return data
}

// bundles returns the authorities of each APIService and of the mounted Secret.
func (fc *fakeCluster) bundles() map[string]servingcert.Bundle {
	all := map[string]servingcert.Bundle{"Secret": servingcert.ParseBundle(fc.secret("tls").Data["ca.crt"])}
	for _, service := range fc.apiServices() {
		all[service.Name] = servingcert.ParseBundle(service.Spec.CABundle)
	}
	return all
}

// rotated reports whether everything is of one authority, and not of the former.
func (fc *fakeCluster) rotated(former servingcert.Bundle) bool {
	if !fc.isReady() {
		return false
	}
	for _, bundle := range fc.bundles() {
		if len(bundle) != 1 || bundle.Equal(former) {
			return false
		}
	}
	return true
}

// The steps of a rotation in order; no pod is rolled for it.
func TestRotation(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.certs.delay = 3
	former := servingcert.ParseBundle(fc.secret("ca").Data["tls.crt"])
	before := fc.mounted()
	pods := fc.pods()
	rotate("2026-11-01")(fc)
	var steps []string
	note := func(step string) {
		if len(steps) == 0 || steps[len(steps)-1] != step {
			steps = append(steps, step)
		}
	}
	fc.reconcileUntil(r, func() bool {
		c := fc.condition(v1alpha1.ConditionCertificatesValid)
		if ready := fc.condition(v1alpha1.ConditionReady); ready.Status == "True" && c.Reason == v1alpha1.ReasonRotating {
			t.Error("ready while it is rotating")
		}
		authorities, leaf, loaded := 1, "old leaf", "by no pod"
		for _, bundle := range fc.bundles() {
			authorities = max(authorities, len(bundle))
		}
		if !fc.mounted()[0].Equal(before[0]) {
			leaf = "new leaf"
		}
		serving := 0
		for _, p := range fc.pods() {
			if fc.certs.served[p.Name][0].Equal(fc.mounted()[0]) {
				serving++
			}
		}
		if serving == len(fc.pods()) {
			loaded = "by each pod"
		}
		note(strings.Join([]string{map[int]string{1: "one authority", 2: "two authorities"}[authorities], leaf, loaded, c.Reason}, ", "))
		return fc.rotated(former)
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
	if !slices.EqualFunc(pods, fc.pods(), func(a, b corev1.Pod) bool { return a.Name == b.Name }) {
		t.Error("pods were replaced")
	}
	if ca := fc.secret("ca"); len(ca.Data) != 2 || ca.Annotations[v1alpha1.AnnotationRotated] != "2026-11-01" {
		t.Errorf("the Secret of the authority has %d keys, annotations %v", len(ca.Data), ca.Annotations)
	}
}

// Whatever lags, is down or stuck, no kube-apiserver ever rejects a pod.
func TestRotationWaits(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		hinder, help func(*fakeCluster)
		want         string
		reason       string
	}{
		"a kube-apiserver lags": {
			hinder: func(fc *fakeCluster) { fc.replicas[1].lags = true }, help: func(fc *fakeCluster) { fc.replicas[1].lags = false },
			want: "192.0.2.2:6443 does not have the new authority",
		},
		"a kubelet does not bring the Secret": {
			hinder: func(fc *fakeCluster) { fc.certs.stuck["pod-001"] = true }, help: func(fc *fakeCluster) { clear(fc.certs.stuck) },
			want: "delete the pod", reason: v1alpha1.ReasonCertificateMismatch,
		},
		"pods do not answer": {
			hinder: func(fc *fakeCluster) { fc.unresponsive = true }, help: func(fc *fakeCluster) { fc.unresponsive = false },
			want: "was not seen to serve the new certificate yet",
		},
	}
	for name, tc := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc, r := ready(t)
			former := servingcert.ParseBundle(fc.secret("ca").Data["tls.crt"])
			tc.hinder(fc)
			rotate("now")(fc)
			fc.reconcileRounds(r, 100)
			fc.wantCondition(v1alpha1.ConditionCertificatesValid, "", cmp.Or(tc.reason, v1alpha1.ReasonRotating), tc.want)
			if got := len(fc.bundles()["v1.metrics.k8s.io"]); got != 2 {
				t.Errorf("%d authorities, want the former one and the new one", got)
			}
			tc.help(fc)
			fc.reconcileUntil(r, func() bool { return fc.rotated(former) })
		})
	}
}

// The same value rotates once, another one again, and none never. A backend that is
// created with a value does not rotate.
func TestRotateAppliesOnce(t *testing.T) {
	t.Parallel()
	backend := newBackend()
	metav1.SetMetaDataAnnotation(&backend.ObjectMeta, v1alpha1.AnnotationRotate, "first")
	fc := newFakeCluster(t, backend)
	r := fc.reconciler()
	mustReconcile(t, r)
	mustReconcile(t, r)
	for _, step := range []struct {
		token   string
		rotates bool
	}{{"first", false}, {"a", true}, {"a", false}, {"", false}, {"a", false}, {"b", true}} {
		former := servingcert.ParseBundle(fc.secret("ca").Data["tls.crt"])
		rotate(step.token)(fc)
		fc.reconcileUntil(r, fc.isReady)
		fc.reconcileRounds(r, 10)
		fc.reconcileUntil(r, fc.isReady)
		if now := servingcert.ParseBundle(fc.secret("ca").Data["tls.crt"]); now.Equal(former) == step.rotates {
			t.Errorf("%q rotated: %t, want %t", step.token, !now.Equal(former), step.rotates)
		}
	}
}

// Certificate and authority are renewed by age, and replaced if they expired while no
// operator ran.
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
			fc, _ := ready(t)
			caKey := fc.secret("ca").Data["tls.key"]
			ca, leaf, key := servingcert.ParseBundle(fc.secret("ca").Data["tls.crt"]), fc.mounted(), fc.secret("tls").Data["tls.key"]
			fc.clock.Step(tc.after)
			fc.certs.untrusted = tc.broken
			r := fc.reconciler()
			mustReconcile(t, r)
			if c := fc.condition(v1alpha1.ConditionCertificatesValid); tc.reason != "" && c.Reason != tc.reason {
				t.Errorf("at first %s %q, want %s", c.Reason, c.Message, tc.reason)
			}
			fc.reconcileUntil(r, func() bool { return fc.isReady() && fc.certs.served[fc.pods()[0].Name][0].Equal(fc.mounted()[0]) })
			fc.certs.untrusted = false
			for range 20 {
				mustReconcile(t, r)
				fc.step()
				fc.checkTrust("afterwards")
			}
			fc.reconcileUntil(r, fc.isReady)
			now := servingcert.ParseBundle(fc.secret("ca").Data["tls.crt"])
			if got := !fc.mounted()[0].Equal(leaf[0]); got != tc.leaf {
				t.Errorf("certificate renewed: %t, want %t", got, tc.leaf)
			}
			if got := string(fc.secret("tls").Data["tls.key"]) != string(key); got != tc.leaf {
				t.Errorf("its key renewed: %t, want %t", got, tc.leaf)
			}
			if got := !now.Equal(ca); got != tc.authority {
				t.Errorf("authority renewed: %t, want %t", got, tc.authority)
			}
			if got := !bytes.Equal(fc.secret("ca").Data["tls.key"], caKey); got != tc.authority {
				t.Errorf("the authority's key renewed: %t, want %t", got, tc.authority)
			}
			for holder, got := range fc.bundles() {
				if !got.Equal(now) {
					t.Errorf("%d authorities are in %s in the end", len(got), holder)
				}
			}
		})
	}
}

// Lost Secrets, one by one and together, are created again; what pods serve stays
// trusted.
func TestLostSecrets(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string][]string{"the certificate": {"tls"}, "the authority": {"ca"}, "both": {"tls", "ca"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc, r := ready(t)
			fc.certs.delay = 2
			for _, name := range lost {
				fc.delete(fc.secret(name))
			}
			fc.reconcileUntil(r, func() bool {
				return fc.isReady() && len(fc.bundles()["v1.metrics.k8s.io"]) == 1 && len(fc.mounted()) > 0 &&
					servingcert.NewIssuer(fc.clock).Verify(fc.mounted(), fc.bundles()["v1.metrics.k8s.io"], "") == nil
			})
		})
	}
}

// Kube-apiservers that cannot be reached delay each rotation by DiscoveryDelay, also to an
// authority that was used before.
func TestAuthorityComesBack(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.provide("a")
	fc.provide("b")
	var took []time.Duration
	for _, change := range []func(*fakeCluster){useSecret("a"), useSecret("b"), useSecret("a"), managed, rotate("now")} {
		// One is down, or, every other time, the addresses cannot be read.
		fc.unreachable = len(took)%2 == 1
		fc.replicas[1].down = !fc.unreachable
		before, begun := fc.mounted()[0], fc.clock.Now()
		change(fc)
		fc.reconcileUntil(r, func() bool { return !fc.mounted()[0].Equal(before) })
		took = append(took, fc.clock.Since(begun))
		fc.replicas[1].down, fc.unreachable = false, false
		fc.reconcileUntil(r, func() bool { return fc.isReady() && len(fc.bundles()["v1.metrics.k8s.io"]) == 1 })
	}
	for _, d := range took {
		if d < aggregator.DiscoveryDelay || d > 2*aggregator.DiscoveryDelay {
			t.Errorf("took %v, want about %s each", took, aggregator.DiscoveryDelay)
		}
	}
}

// The operator's clock is ahead for a while. kube-apiserver, whose clock is right, trusts
// every pod meanwhile and after.
func TestClockAhead(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	cases := map[string]struct {
		before, meanwhile func(*fakeCluster)
		ahead             time.Duration
	}{
		"the leaf seems to be due":                   {ahead: 70 * day},
		"the leaf seems to have expired":             {ahead: 100 * day},
		"a new authority is made":                    {meanwhile: rotate("now"), ahead: 70 * day},
		"the user's authority seems to have expired": {before: func(fc *fakeCluster) { fc.provide("mine"); useSecret("mine")(fc) }, ahead: servingcert.AuthorityLifetime + day},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc, r := ready(t)
			if tc.before != nil {
				tc.before(fc)
				fc.reconcileUntil(r, fc.isReady)
			}
			right := fc.clock.Now()
			fc.clock.Step(tc.ahead)
			if tc.meanwhile != nil {
				tc.meanwhile(fc)
			}
			for range 40 {
				fc.certs.untrusted = true // by the operator's clock
				_, _ = reconcileOnce(t, r)
				fc.step()
				fc.certs.untrusted = false
				now := fc.clock.Now()
				fc.clock.SetTime(right)
				fc.checkTrust("by the right clock")
				fc.clock.SetTime(now)
			}
			fc.clock.SetTime(right)
			fc.reconcileUntil(r, fc.isReady)
		})
	}
}
