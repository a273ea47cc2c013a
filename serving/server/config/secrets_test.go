// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus"
)

// A Secret that was not read differs from one that does not exist. Changed data is returned
// at once, and none after the deletion.
func TestSecretThatChanges(t *testing.T) {
	w := &watchedSecret{informer: &objectInformer[*corev1.Secret]{}}
	s := &Secrets{watched: map[string]*watchedSecret{"a": w}}
	unread := func(name, why string) {
		t.Helper()
		if _, err := s.Get(name); err == nil || errors.Is(err, prometheus.ErrNoSecret) || !strings.Contains(err.Error(), why) {
			t.Errorf("a Secret that was not read: %v, want %q", err, why)
		}
	}
	unread("b", "not watched")
	unread("a", "no answer")
	for kind, why := range map[string]string{forbidden: "the operator adds it to the Role", unavailable: "Unavailable"} {
		w.informer.lastFailure.Store(&kind)
		unread("a", why)
	}
	for _, token := range []string{"first", "second"} {
		w.apply(t.Context(), []*corev1.Secret{{Data: map[string][]byte{"token": []byte(token)}}})
		if data, err := s.Get("a"); err != nil || string(data["token"]) != token {
			t.Errorf("got %q, %v, want %q", data, err, token)
		}
	}
	w.apply(t.Context(), nil)
	if data, err := s.Get("a"); !errors.Is(err, prometheus.ErrNoSecret) || data != nil {
		t.Errorf("a Secret that is gone: %q, %v", data, err)
	}
}

// New Secrets are watched beside the old ones until Retain drops these.
func TestWatchAndRetain(t *testing.T) {
	s := NewSecrets(fake.NewClientset(), "backend")
	watched := func(name string) bool {
		_, err := s.Get(name)
		return !strings.Contains(err.Error(), "not watched")
	}
	for _, names := range [][]string{{"a"}, {"b"}} {
		s.Watch(names)
	}
	if !watched("a") || !watched("b") {
		t.Error("a Secret is not watched")
	}
	s.Retain([]string{"b"})
	if watched("a") || !watched("b") {
		t.Error("another Secret than b is watched, or b is not")
	}
}

// While informers stop, Get does not block.
func TestSecretsWhileRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSecrets(fake.NewClientset(), "backend")
		slow := make(chan struct{})
		s.running.Go(func(context.Context) { <-slow })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx)
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
