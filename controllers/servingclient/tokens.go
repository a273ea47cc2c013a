// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tokenLifetime is the shortest lifetime that kube-apiserver grants.
const tokenLifetime = 10 * time.Minute

// Tokens requests short-lived tokens of ServiceAccounts (TokenRequest) and caches each
// for two thirds of its lifetime.
type Tokens struct {
	client client.SubResourceClientConstructor
	clock  clock.PassiveClock

	mu     sync.Mutex
	tokens map[client.ObjectKey]token
}

type token struct {
	value      string
	renewAfter time.Time
}

// NewTokens returns an empty cache of tokens.
func NewTokens(c client.SubResourceClientConstructor, clock clock.PassiveClock) *Tokens {
	return &Tokens{client: c, clock: clock, tokens: map[client.ObjectKey]token{}}
}

// Token returns a token of the ServiceAccount, which must exist.
func (t *Tokens) Token(ctx context.Context, account client.ObjectKey) (string, error) {
	now := t.clock.Now()
	t.mu.Lock()
	cached := t.tokens[account]
	t.mu.Unlock()
	if now.Before(cached.renewAfter) {
		return cached.value, nil
	}
	// Without the lock, so that accounts do not wait for each other. Two concurrent
	// callers may request a token each; either is fine.
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds())),
	}}
	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}
	if err := t.client.SubResource("token").Create(ctx, owner, request); err != nil {
		return "", fmt.Errorf("request a token of ServiceAccount %s: %w", account, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens[account] = token{value: request.Status.Token, renewAfter: now.Add(tokenLifetime * 2 / 3)}
	return request.Status.Token, nil
}

// Forget removes the token of a ServiceAccount from the cache: the account may have been
// replaced by another of the same name.
func (t *Tokens) Forget(account client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.tokens, account)
}
