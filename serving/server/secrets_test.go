// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

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

// A Secret that has not been read is another thing than one that does not exist, and its
// data is there at once when it changes, and gone with it.
func TestSecretThatChanges(t *testing.T) {
	f := &followedSecret{objects: &objectInformer[*corev1.Secret]{}}
	s := &secrets{followed: map[string]*followedSecret{"a": f}}
	unread := func(name, why string) {
		t.Helper()
		if _, err := s.get(name); err == nil || errors.Is(err, prometheus.ErrNoSecret) || !strings.Contains(err.Error(), why) {
			t.Errorf("a Secret that was not read: %v, want %q", err, why)
		}
	}
	unread("b", "not followed")
	unread("a", "no answer")
	for kind, why := range map[string]string{forbidden: "the operator adds it to the Role", unavailable: "Unavailable"} {
		f.objects.told.Store(&kind)
		unread("a", why)
	}
	for _, token := range []string{"first", "second"} {
		f.apply(t.Context(), []*corev1.Secret{{Data: map[string][]byte{"token": []byte(token)}}})
		if data, err := s.get("a"); err != nil || string(data["token"]) != token {
			t.Errorf("got %q, %v, want %q", data, err, token)
		}
	}
	f.apply(t.Context(), nil)
	if data, err := s.get("a"); !errors.Is(err, prometheus.ErrNoSecret) || data != nil {
		t.Errorf("a Secret that is gone: %q, %v", data, err)
	}
}

// New Secrets are followed besides the old ones until these are given up.
func TestFollowAndKeep(t *testing.T) {
	s := newSecrets(fake.NewClientset(), "backend")
	followed := func(name string) bool {
		_, err := s.get(name)
		return !strings.Contains(err.Error(), "not followed")
	}
	for _, names := range [][]string{{"a"}, {"b"}} {
		if err := s.follow(names); err != nil {
			t.Fatal(err)
		}
	}
	if !followed("a") || !followed("b") {
		t.Error("a Secret is not followed")
	}
	s.keep([]string{"b"})
	if followed("a") || !followed("b") {
		t.Error("another Secret than b is followed, or b is not")
	}
}

// While followers end, requests still learn what is known.
func TestSecretsWhileRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecrets(fake.NewClientset(), "backend")
		slow := make(chan struct{})
		s.running.Go(func() { <-slow })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.run(ctx)
		}()
		cancel()
		synctest.Wait()
		if !s.mu.TryLock() {
			t.Fatal("requests wait for followers to end")
		}
		s.mu.Unlock()
		close(slow)
		<-ended
	})
}
