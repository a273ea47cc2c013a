// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package accounttoken

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

var account = types.NamespacedName{Namespace: "ns", Name: "scrape"}

// issuer grants tokens t1, t2 and so on, or fails.
type issuer struct {
	// failing returns the error of the nth request, from 1.
	failing func(n int) error
	// granted is the lifetime in an answer.
	granted time.Duration
	start   time.Time

	mu sync.Mutex
	// requests are the times of the requests since start.
	requests []time.Duration
}

func (i *issuer) request() (*authenticationv1.TokenRequest, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.requests = append(i.requests, time.Since(i.start))
	if i.failing != nil {
		if err := i.failing(len(i.requests)); err != nil {
			return nil, err
		}
	}
	return &authenticationv1.TokenRequest{
		Spec:   authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(i.granted.Seconds()))},
		Status: authenticationv1.TokenRequestStatus{Token: fmt.Sprintf("t%d", len(i.requests))},
	}, nil
}

func (i *issuer) requested() []time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.requests)
}

// run runs a test in a bubble, whose time only passes while all wait.
func run(t *testing.T, i *issuer, random float64, test func(*Source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		i.start = time.Now()
		client := fake.NewClientset()
		client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
			answer, err := i.request()
			return true, answer, err
		})
		s := New(client.CoreV1(), account, "", clock.RealClock{}, func() float64 { return random })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx)
		synctest.Wait()
		test(s)
	})
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// text returns the token, or the error.
func text(s *Source) string {
	token, err := s.Token()
	if err != nil {
		return err.Error()
	}
	return token.AccessToken
}

func TestRequests(t *testing.T) {
	always := func(err error) func(int) error { return func(int) error { return err } }
	down := errors.New("connection refused")
	cases := map[string]struct {
		issuer *issuer
		random float64
		until  time.Duration
		want   []time.Duration
		token  string
	}{
		"at 80 % of the lifetime":              {issuer: &issuer{granted: 10 * time.Minute}, until: 17 * time.Minute, want: minutes(0, 8, 16), token: "t3"},
		"up to 10 % of it earlier":             {issuer: &issuer{granted: 10 * time.Minute}, random: 1, until: 15 * time.Minute, want: minutes(0, 7, 14), token: "t3"},
		"of the lifetime that it gets":         {issuer: &issuer{granted: time.Hour}, until: 97 * time.Minute, want: minutes(0, 48, 96), token: "t3"},
		"that of the request if none is named": {issuer: &issuer{}, until: 9 * time.Minute, want: minutes(0, 8), token: "t2"},
		"failures are retried more and more slowly": {
			issuer: &issuer{failing: always(down)}, random: 1, until: 95 * time.Second,
			want:  seconds(0, 1, 3, 7, 15, 31, 61, 91),
			token: "cannot get a token of ServiceAccount ns/scrape, and no other is sent: connection refused",
		},
		"half of that at random": {
			issuer: &issuer{failing: always(down)}, until: 4 * time.Second,
			want:  []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond, 3500 * time.Millisecond},
			token: "cannot get a token of ServiceAccount ns/scrape, and no other is sent: connection refused",
		},
		"the last token stays, expired or not": {
			issuer: &issuer{granted: 10 * time.Minute, failing: func(n int) error {
				if n == 1 {
					return nil
				}
				return down
			}},
			random: 1, until: 7*time.Minute + 20*time.Minute, token: "t1",
		},
		"a success ends the backoff": {
			issuer: &issuer{granted: 10 * time.Minute, failing: func(n int) error {
				if n <= 3 || n == 5 {
					return down
				}
				return nil
			}},
			random: 1, until: 8 * time.Minute,
			want: seconds(0, 1, 3, 7, 7+7*60, 8+7*60), token: "t6",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run(t, tc.issuer, tc.random, func(s *Source) {
				after(tc.until)
				if diff := cmp.Diff(tc.token, text(s)); diff != "" {
					t.Errorf("token (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.want, tc.issuer.requested()); tc.want != nil && diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func minutes(all ...int) []time.Duration { return durations(time.Minute, all) }
func seconds(all ...int) []time.Duration { return durations(time.Second, all) }

func durations(unit time.Duration, all []int) (d []time.Duration) {
	for _, n := range all {
		d = append(d, time.Duration(n)*unit)
	}
	return d
}

// A rejected token is replaced, but not again and again by one kubelet that rejects all.
func TestRejected(t *testing.T) {
	i := &issuer{granted: 10 * time.Minute}
	run(t, i, 0, func(s *Source) {
		steps := []struct {
			what  string
			after time.Duration
			// old: the request that was rejected began before the last token was there.
			old  bool
			want string
		}{
			{"at once", time.Second, false, "t1"},
			{"after a minute", time.Minute, false, "t2"},
			{"again at once", time.Second, false, "t2"},
			{"again after a minute", time.Minute, false, "t3"},
			{"one of a request from before", 2 * time.Minute, true, "t3"},
			{"after two minutes", 0, false, "t4"},
		}
		for _, step := range steps {
			after(step.after)
			began := time.Now()
			if step.old {
				began = began.Add(-10 * time.Minute)
			}
			s.ResetTokenOlderThan(began)
			synctest.Wait()
			if got := text(s); got != step.want {
				t.Errorf("%s: got %s, want %s", step.what, got, step.want)
			}
		}
		// The next renewal counts from the last token.
		requests := len(i.requested())
		after(8*time.Minute - time.Second)
		if got := i.requested(); len(got) != requests {
			t.Errorf("requests at %v, want none before 80 %% of the lifetime", got[requests:])
		}
		after(time.Second)
		if got := i.requested(); len(got) != requests+1 {
			t.Errorf("requests at %v, want one at 80 %% of the lifetime", got[requests:])
		}
	})
}

// Errors say whose token it is and what to do, and Tried does not wait for a success.
func TestErrors(t *testing.T) {
	resource := schema.GroupResource{Resource: "serviceaccounts/token"}
	cases := map[string]struct {
		err  error
		want []string
	}{
		"forbidden": {apierrors.NewForbidden(resource, "scrape", errors.New("no")), []string{"ServiceAccount ns/scrape", "create on serviceaccounts/token", "is forbidden"}},
		"not found": {apierrors.NewNotFound(resource, "scrape"), []string{"ServiceAccount ns/scrape", "does not exist", "MetricsBackend"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run(t, &issuer{failing: func(int) error { return tc.err }}, 0, func(s *Source) {
				<-s.Tried()
				_, err := s.Token()
				if !errors.Is(err, tc.err) {
					t.Errorf("got %v, want the cause", err)
				}
				for _, part := range tc.want {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("got %q, want it to mention %q", err, part)
					}
				}
			})
		})
	}
}

// Until the first request there is no token, and no panic.
func TestBeforeRun(t *testing.T) {
	s := NewForIssuer("any", nil, clock.RealClock{}, nil)
	s.ResetTokenOlderThan(time.Now())
	if got := text(s); !strings.Contains(got, "was not requested yet") {
		t.Errorf("got %q", got)
	}
	select {
	case <-s.Tried():
		t.Error("it was requested")
	default:
	}
}
