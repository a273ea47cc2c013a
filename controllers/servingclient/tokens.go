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

// tokenLifetime is the shortest that kube-apiserver grants.
const tokenLifetime = 10 * time.Minute

// Tokens mints short-lived tokens of ServiceAccounts (TokenRequest) and keeps
// each until two thirds of its lifetime are gone.
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

// NewTokens returns Tokens without any token.
func NewTokens(c client.SubResourceClientConstructor, clock clock.PassiveClock) *Tokens {
	return &Tokens{client: c, clock: clock, tokens: map[client.ObjectKey]token{}}
}

// Token returns a token of the ServiceAccount, which must exist.
func (t *Tokens) Token(ctx context.Context, account client.ObjectKey) (string, error) {
	now := t.clock.Now()
	if known, ok := t.known(account); ok && now.Before(known.renewAfter) {
		return known.value, nil
	}
	// Without the lock: one account waits for no other's. Two callers at a time may
	// mint one each, and either will do.
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

func (t *Tokens) known(account client.ObjectKey) (token, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok := t.tokens[account]
	return known, ok
}

// Forget drops the token of a ServiceAccount, so that the next one is new: the
// account may have been replaced by another of the same name.
func (t *Tokens) Forget(account client.ObjectKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.tokens, account)
}
