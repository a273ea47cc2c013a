// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accounttoken requests tokens, of a ServiceAccount (TokenRequest) or of another issuer, and renews them.
package accounttoken

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
)

const (
	// lifetime is the shortest that kube-apiserver grants. Only the lifetime limits how long
	// a leaked token is of use: kube-apiserver binds a token to a pod only if it is of the
	// pod's own account. It is also assumed of an issuer that does not say what it grants.
	lifetime = 10 * time.Minute
	// A token is renewed after renewAt of its lifetime, minus a random part of up to
	// renewJitter of it, as clients of kube-apiserver do.
	renewAt, renewJitter = 0.8, 0.1
	// requestTimeout limits one request.
	requestTimeout = 10 * time.Second
	// resetInterval is the shortest time from a request to one that a rejected token causes:
	// a single kubelet could reject every token.
	resetInterval = time.Minute
)

// retries are the delays after failed requests in a row, of which half is random.
var retries = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: 30 * time.Second}

// Source has a token of one issuer. Its methods are safe for concurrent use.
type Source struct {
	issuer  string
	request func(context.Context) (*oauth2.Token, error)
	clock   clock.Clock
	random  func() float64
	// rejected wakes Run for a new token.
	rejected wake.Signal
	// tried is closed after the first request.
	tried chan struct{}

	mu    sync.Mutex
	token *oauth2.Token
	// requested is the time of the last request, obtained that of the token.
	requested, obtained time.Time
	// err is that of the last request, or nil; before the first it says so.
	err error
}

// New returns a Source of the account's tokens for an audience, which Run requests with client.
// Without an audience they are for kube-apiserver. random returns numbers in [0, 1).
func New(client corev1client.ServiceAccountsGetter, account types.NamespacedName, audience string, c clock.Clock, random func() float64) *Source {
	spec := authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(lifetime.Seconds()))}
	if audience != "" {
		spec.Audiences = []string{audience}
	}
	return NewForIssuer("ServiceAccount "+account.String(), func(ctx context.Context) (*oauth2.Token, error) {
		// client-go logs responses from verbosity 8 on.
		ctx = klog.NewContext(ctx, logr.Discard())
		answer, err := client.ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		// What was granted, not its expirationTimestamp, which is of another clock.
		return &oauth2.Token{AccessToken: answer.Status.Token, ExpiresIn: ptr.Deref(answer.Spec.ExpirationSeconds, 0)}, nil
	}, c, random)
}

// NewForIssuer returns a Source of an issuer's tokens, which Run requests with request, and renews by their ExpiresIn.
// Errors of request are logged and name the issuer.
func NewForIssuer(issuer string, request func(context.Context) (*oauth2.Token, error), c clock.Clock, random func() float64) *Source {
	return &Source{
		issuer: issuer, request: request, clock: c, random: random,
		rejected: wake.NewSignal(), tried: make(chan struct{}),
		err: fmt.Errorf("a token of %s was not requested yet", issuer),
	}
}

// Tried is closed after the first request, whether it succeeded or not.
func (s *Source) Tried() <-chan struct{} { return s.tried }

// Token implements oauth2.TokenSource. It does not block. Without a token it returns the error of the
// last request, also if that failed after the Expiry of the last token. One without Expiry is
// returned even if it has expired: whether it is still accepted is up to its receiver.
func (s *Source) Token() (*oauth2.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && !s.token.Valid() {
		return nil, s.err
	}
	return s.token, nil
}

// ResetTokenOlderThan implements transport.ResettableTokenSource: the token that was current
// at t was rejected. It makes Run request another one, unless it did so less than
// resetInterval ago; until there is one, the rejected one stays.
func (s *Source) ResetTokenOlderThan(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.obtained.Before(t) && s.clock.Since(s.requested) >= resetInterval {
		s.rejected.Set()
	}
}

// Run requests tokens until the context ends.
func (s *Source) Run(ctx context.Context) {
	backoff := retries
	for {
		granted, err := s.renew(ctx)
		pause := time.Duration((renewAt - renewJitter*s.random()) * float64(granted))
		if err != nil {
			pause = time.Duration((0.5 + s.random()/2) * float64(backoff.Step()))
		} else {
			backoff = retries
		}
		if !s.rejected.Wait(ctx, s.clock, pause) {
			return
		}
	}
}

// renew requests a token, and returns the lifetime that was granted.
func (s *Source) renew(ctx context.Context) (time.Duration, error) {
	// Before the request, so that a token is never taken for younger than it is, and that
	// kubelets that reject the old one meanwhile cause no further request.
	start := s.clock.Now()
	s.mu.Lock()
	before, first := s.err, s.requested.IsZero()
	s.requested = start
	s.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	token, err := s.request(limited)
	if ctx.Err() != nil {
		return 0, err
	}
	logger := klog.FromContext(ctx).WithValues("issuer", s.issuer)

	s.mu.Lock()
	defer s.mu.Unlock()
	if first {
		defer close(s.tried)
	}
	if err != nil {
		s.err = fmt.Errorf("cannot get a token of %s, and no other is sent: %s%w", s.issuer, advice(err), err)
		if first || before == nil || before.Error() != s.err.Error() {
			logger.Error(s.err, "Cannot request a token; trying again", "lastToken", s.token != nil)
		}
		return 0, s.err
	}
	if before != nil && !first {
		logger.Info("Got a token again")
	}
	s.token, s.obtained, s.err = token, start, nil
	granted := time.Duration(token.ExpiresIn) * time.Second
	if granted <= 0 {
		granted = lifetime
	}
	return granted, nil
}

// advice returns what the user can do about an error of TokenRequest, or "".
func advice(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "the serving component's account needs create on serviceaccounts/token of that name, which the operator grants in the Role of the serving pods: "
	case apierrors.IsNotFound(err):
		return "the account does not exist; the operator creates it, see the status of the MetricsBackend: "
	}
	return ""
}
