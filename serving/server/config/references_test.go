// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/accounttoken"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

func TestNamedObjectThatChanges(t *testing.T) {
	r := NewReferences(fake.NewClientset(), "backend", nil)
	t.Run("Secret", func(t *testing.T) {
		objectThatChanges(t, r.Secrets, func(token string) *corev1.Secret {
			return &corev1.Secret{Data: map[string][]byte{"token": []byte(token)}}
		})
	})
	t.Run("ConfigMap", func(t *testing.T) {
		objectThatChanges(t, r.ConfigMaps, func(token string) *corev1.ConfigMap {
			return &corev1.ConfigMap{Data: map[string]string{"token": token}}
		})
	})
}

// objectThatChanges checks that an object that was not read differs from one that does not
// exist, and that changed data is returned at once, and none after the deletion.
func objectThatChanges[T metaObject](t *testing.T, s *NamedObjects[T], with func(token string) T) {
	t.Helper()
	w := s.create("a")
	s.items["a"] = w
	unread := func(name, why string) {
		t.Helper()
		if _, err := s.Get(name); err == nil || errors.Is(err, sourceclient.ErrNotFound) || !strings.Contains(err.Error(), why) {
			t.Errorf("an object that was not read: %v, want %q", err, why)
		}
	}
	unread("b", "not watched")
	unread("a", "no answer")
	for kind, why := range map[string]string{forbidden: "the operator adds it to the Role", unavailable: "Unavailable"} {
		w.informer.lastFailure.Store(&kind)
		unread("a", why)
	}
	for _, token := range []string{"first", "second"} {
		w.apply(t.Context(), []T{with(token)})
		if data, err := s.Get("a"); err != nil || string(data["token"]) != token {
			t.Errorf("got %q, %v, want %q", data, err, token)
		}
	}
	w.apply(t.Context(), nil)
	if data, err := s.Get("a"); !errors.Is(err, sourceclient.ErrNotFound) || data != nil {
		t.Errorf("an object that is gone: %q, %v", data, err)
	}
}

// New objects are watched beside the old ones until Retain drops these.
func TestWatchAndRetain(t *testing.T) {
	r := NewReferences(fake.NewClientset(), "backend", nil)
	watched := func() map[string]bool {
		all := map[string]bool{}
		for _, name := range []string{"a", "b"} {
			_, secret := r.Secrets.Get(name)
			_, configMap := r.ConfigMaps.Get(name)
			all["Secret "+name] = !strings.Contains(secret.Error(), "not watched")
			all["ConfigMap "+name] = !strings.Contains(configMap.Error(), "not watched")
		}
		return all
	}
	naming := func(secret, configMap string) *v1alpha1.MetricsBackendSpec {
		return &v1alpha1.MetricsBackendSpec{Sources: []v1alpha1.SourceSpec{{Name: "main", Prometheus: &v1alpha1.PrometheusSource{
			TLS:            v1alpha1.SourceTLS{CAConfigMapKeyRef: &v1alpha1.ConfigMapKeyReference{Name: configMap, Key: "ca.crt"}},
			Authentication: v1alpha1.SourceAuthentication{BasicAuthSecretRef: &v1alpha1.SecretReference{Name: secret}},
		}}}}
	}
	r.Watch(naming("a", "b"))
	want := map[string]bool{"Secret a": true, "Secret b": false, "ConfigMap a": false, "ConfigMap b": true}
	if diff := cmp.Diff(want, watched()); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	r.Watch(naming("b", "a"))
	want = map[string]bool{"Secret a": true, "Secret b": true, "ConfigMap a": true, "ConfigMap b": true}
	if diff := cmp.Diff(want, watched()); diff != "" {
		t.Errorf("before Retain (-want +got):\n%s", diff)
	}
	r.Retain(naming("b", "a"))
	want = map[string]bool{"Secret a": false, "Secret b": true, "ConfigMap a": true, "ConfigMap b": false}
	if diff := cmp.Diff(want, watched()); diff != "" {
		t.Errorf("after Retain (-want +got):\n%s", diff)
	}
}

// Tokens are requested for each audience once, until Retain drops it.
func TestTokensByAudience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var requested []string
		client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
			request := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest)
			audiences := strings.Join(request.Spec.Audiences, " ")
			requested = append(requested, audiences)
			request.Status.Token = "token for " + audiences
			return true, request, nil
		})
		r := NewReferences(client, "backend", func(token v1alpha1.SourceToken) *accounttoken.Source {
			return accounttoken.New(client.CoreV1(), types.NamespacedName{Namespace: "backend", Name: "serving" + token.AccountSuffix}, token.Audience, clock.RealClock{}, func() float64 { return 0 })
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		tokens := func() map[string]string {
			synctest.Wait()
			all := map[string]string{}
			for _, audience := range []string{"", "thanos"} {
				if token, err := r.Tokens(v1alpha1.SourceAccountSuffix)(audience).Token(); err != nil {
					all[audience] = err.Error()
				} else {
					all[audience] = token.AccessToken
				}
			}
			return all
		}
		wanting := func(audiences ...string) *v1alpha1.MetricsBackendSpec {
			spec := &v1alpha1.MetricsBackendSpec{}
			for _, audience := range audiences {
				spec.Sources = append(spec.Sources, v1alpha1.SourceSpec{Prometheus: &v1alpha1.PrometheusSource{Authentication: v1alpha1.SourceAuthentication{
					ServiceAccountToken: &v1alpha1.SourceServiceAccountToken{Audience: audience},
				}}})
			}
			return spec
		}
		const unrequested = "a token of ServiceAccount backend/serving-source was not requested yet"
		r.Watch(wanting("thanos", "thanos"))
		if diff := cmp.Diff(map[string]string{"": unrequested, "thanos": "token for thanos"}, tokens()); diff != "" {
			t.Errorf("with an audience (-want +got):\n%s", diff)
		}
		r.Watch(wanting(""))
		if diff := cmp.Diff(map[string]string{"": "token for ", "thanos": "token for thanos"}, tokens()); diff != "" {
			t.Errorf("before Retain (-want +got):\n%s", diff)
		}
		r.Retain(wanting(""))
		if diff := cmp.Diff(map[string]string{"": "token for ", "thanos": unrequested}, tokens()); diff != "" {
			t.Errorf("after Retain (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"thanos", ""}, requested); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// While informers stop, Get does not block.
func TestReferencesWhileRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReferences(fake.NewClientset(), "backend", nil)
		s := r.Secrets
		slow := make(chan struct{})
		s.running.Go(func(context.Context) { <-slow })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Run(ctx)
		}()
		cancel()
		synctest.Wait()
		if !s.mu.TryLock() {
			t.Fatal("Get blocks until the informers have stopped")
		}
		s.mu.Unlock()
		close(slow)
		<-ended
	})
}
