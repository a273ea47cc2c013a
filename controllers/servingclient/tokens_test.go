// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestTokens(t *testing.T) {
	minted := 0
	var fail error
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, name string, owner, sub client.Object, _ ...client.SubResourceCreateOption) error {
			if fail != nil {
				return fail
			}
			request, ok := sub.(*authenticationv1.TokenRequest)
			if !ok || name != "token" || *request.Spec.ExpirationSeconds != 600 || len(request.Spec.Audiences) != 0 {
				t.Errorf("asked for %s with %+v", name, sub)
			}
			minted++
			request.Status.Token = fmt.Sprintf("%s-%d", owner.GetName(), minted)
			return nil
		},
	})
	clock := testingclock.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	tokens := NewTokens(c, clock)
	key := client.ObjectKey{Namespace: "ns", Name: "prober"}
	get := func(key client.ObjectKey) string {
		t.Helper()
		token, err := tokens.Token(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	steps := []struct {
		name string
		do   func()
		want string
	}{
		{"first", func() {}, "prober-1"},
		{"kept", func() { clock.Step(6 * time.Minute) }, "prober-1"},
		{"renewed well before it expires", func() { clock.Step(time.Minute) }, "prober-2"},
		{"forgotten", func() { tokens.Forget(key) }, "prober-3"},
	}
	for _, step := range steps {
		step.do()
		if got := get(key); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	if got := get(client.ObjectKey{Namespace: "ns", Name: "other"}); got != "other-4" {
		t.Errorf("another account: %s", got)
	}
	tokens.Forget(key)
	fail = errors.New("no")
	if _, err := tokens.Token(t.Context(), key); !errors.Is(err, fail) || !strings.Contains(err.Error(), "ns/prober") {
		t.Errorf("error %v, want the cause and the account", err)
	}
}

// An account whose token takes long holds up no other's.
func TestTokensDoNotWaitForEachOther(t *testing.T) {
	var tokens *Tokens
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, _ client.Client, _ string, owner, sub client.Object, _ ...client.SubResourceCreateOption) error {
			if request, ok := sub.(*authenticationv1.TokenRequest); ok {
				request.Status.Token = owner.GetName()
			}
			if owner.GetName() == "slow" {
				_, err := tokens.Token(ctx, client.ObjectKey{Namespace: "ns", Name: "quick"})
				return err
			}
			return nil
		},
	})
	tokens = NewTokens(c, testingclock.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)))
	got := make(chan string, 1)
	go func() {
		token, _ := tokens.Token(context.Background(), client.ObjectKey{Namespace: "ns", Name: "slow"})
		got <- token
	}()
	select {
	case token := <-got:
		if token != "slow" {
			t.Errorf("token %q", token)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the quick one waits for the slow one")
	}
}
