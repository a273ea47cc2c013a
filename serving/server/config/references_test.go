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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus"
)

func TestNamedObjectThatChanges(t *testing.T) {
	r := NewReferences(fake.NewClientset(), "backend")
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
	w := s.newWatched("a")
	s.watched["a"] = w
	unread := func(name, why string) {
		t.Helper()
		if _, err := s.Get(name); err == nil || errors.Is(err, prometheus.ErrNotFound) || !strings.Contains(err.Error(), why) {
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
	if data, err := s.Get("a"); !errors.Is(err, prometheus.ErrNotFound) || data != nil {
		t.Errorf("an object that is gone: %q, %v", data, err)
	}
}

// New objects are watched beside the old ones until Retain drops these.
func TestWatchAndRetain(t *testing.T) {
	r := NewReferences(fake.NewClientset(), "backend")
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
	naming := func(secret, configMap string) []v1alpha1.SourceSpec {
		return []v1alpha1.SourceSpec{{Name: "main", Prometheus: &v1alpha1.PrometheusSource{
			TLS:            v1alpha1.SourceTLS{CAConfigMap: &v1alpha1.ConfigMapKeyReference{Name: configMap, Key: "ca.crt"}},
			Authentication: v1alpha1.SourceAuthentication{Basic: &v1alpha1.SecretReference{Name: secret}},
		}}}
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

// While informers stop, Get does not block.
func TestReferencesWhileRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReferences(fake.NewClientset(), "backend")
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
