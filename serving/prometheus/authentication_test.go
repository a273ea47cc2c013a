// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/transport"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

// accountTokens are those of a ServiceAccount.
type accountTokens struct {
	token string
	err   error
	// resets are the times at which a rejected token was current.
	resets []time.Time
}

func (a *accountTokens) Token() (*oauth2.Token, error) {
	return &oauth2.Token{AccessToken: a.token}, a.err
}

func (a *accountTokens) ResetTokenOlderThan(t time.Time) { a.resets = append(a.resets, t) }

// The token of the ServiceAccount is that of the audience in the spec, and the newest one. One that the server answers
// with 401 is reported.
func TestServiceAccountToken(t *testing.T) {
	var seen []string
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		if seen[len(seen)-1] == "Bearer rejected" {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		answers("application/json", oneSample)(rw, r)
	}, func(s *v1alpha1.PrometheusSource) {
		s.Authentication.ServiceAccountToken = &v1alpha1.SourceServiceAccountToken{Audience: "thanos"}
	})
	tokens := map[string]*accountTokens{"thanos": {}}
	w.options.Tokens = func(audience string) transport.ResettableTokenSource { return tokens[audience] }
	w.start(t)
	evaluate := func() error {
		_, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
		return err
	}
	for _, tokens["thanos"].token = range []string{"first", "second"} {
		if err := evaluate(); err != nil {
			t.Fatal(err)
		}
	}
	tokens["thanos"].token = "rejected"
	if f := failureIn(t, evaluate()); f.Reason != query.ReasonUnauthorized {
		t.Errorf("a rejected token: %v", f)
	}
	if diff := cmp.Diff([]string{"Bearer first", "Bearer second", "Bearer rejected"}, seen); diff != "" {
		t.Errorf("the server saw (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]time.Time{instant}, tokens["thanos"].resets); diff != "" {
		t.Errorf("rejected tokens (-want +got):\n%s", diff)
	}
	tokens["thanos"].err = errors.New("cannot get a token: forbidden")
	w.clock.Step(sourceclient.MaxPending)
	_ = evaluate()
	w.clock.Step(sourceclient.MaxPending)
	if f := failureIn(t, evaluate()); f.Reason != query.ReasonCredentials || f.Message != "there is no token for authentication: cannot get a token: forbidden" {
		t.Errorf("without a token: %v", f)
	}
}

// issuer is an authorization server.
type issuer struct {
	mu sync.Mutex
	// logins are those of the requests for tokens.
	logins []string
	answer http.HandlerFunc
	host   string
	// rejected is what the source rejects in Authorization.
	rejected string
}

func (i *issuer) set(answer http.HandlerFunc, rejected string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer, i.rejected = answer, rejected
}

func (i *issuer) rejects(token string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.rejected == token
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	if id, secret, ok := r.BasicAuth(); ok { // otherwise oauth2 tries them in the body after a failure
		i.logins = append(i.logins, fmt.Sprintf("%s:%s %s %s", id, secret, r.FormValue("grant_type"), r.FormValue("scope")))
	}
	answer := i.answer
	i.mu.Unlock()
	answer(w, r)
}

// grant is the answer with a token that is valid for some seconds.
func grant(token string, seconds int) http.HandlerFunc {
	return answers("application/json", fmt.Sprintf(`{"access_token": %q, "token_type": "bearer", "expires_in": %d}`, token, seconds))
}

// newIssuer starts one, and returns a change that makes a source use it.
func newIssuer(t *testing.T, answer http.HandlerFunc) (*issuer, func(*v1alpha1.PrometheusSource)) {
	t.Helper()
	i := &issuer{answer: answer}
	server := httptest.NewUnstartedServer(i)
	server.Config.ErrorLog = quiet
	server.StartTLS()
	t.Cleanup(server.Close)
	i.host = server.Listener.Addr().String()
	return i, func(s *v1alpha1.PrometheusSource) {
		s.Authentication.OAuth2 = &v1alpha1.SourceOAuth2{
			TokenURL: server.URL + "/token", CredentialsSecretRef: v1alpha1.SecretReference{Name: "client"}, Scopes: []string{"read", "query"},
		}
	}
}

// requestTokens requests tokens in the background while the test runs, as Run does.
func (w *world) requestTokens(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.source.client.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// until evaluates a query until its error is as done wants it.
func (w *world) until(t *testing.T, what string, done func(error) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := w.source.Evaluate(ctx, query.Query{Expression: "x"}, instant)
		return done(err), nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// A source gets the token that is issued for the client, and never the client's secret. It gets another one when
// the Secret changes, when it rejects this one, and before this one expires; until then it gets this one.
func TestOAuth2(t *testing.T) {
	issuer, change := newIssuer(t, nil)
	var seen []string
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		token := r.Header.Get("Authorization")
		if !slices.Contains(seen, token) {
			seen = append(seen, token)
		}
		if issuer.rejects(token) {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		answers("application/json", oneSample)(rw, r)
	}, change)
	w.requestTokens(t)
	login := func(secret string) {
		w.secrets.set("client", map[string]string{"client-id": "id\n", "client-secret": secret})
	}
	gets := func(token string) func(error) bool {
		return func(err error) bool { return err == nil && seen[len(seen)-1] == "Bearer "+token }
	}
	login("hunter2")
	issuer.set(grant("issued-1", 3600), "")
	w.until(t, "the first", gets("issued-1"))
	issuer.set(grant("issued-2", 3600), "")
	w.until(t, "the same", gets("issued-1"))
	login("rotated")
	w.until(t, "for another Secret", gets("issued-2"))
	issuer.set(answers("application/json", `{"access_token": "issued-3", "token_type": "bearer"}`), "Bearer issued-2")
	w.clock.Step(time.Minute)
	w.until(t, "instead of a rejected one", gets("issued-3"))
	issuer.set(grant("issued-4", 1), "")
	w.until(t, "instead of one of unknown lifetime", func(err error) bool {
		w.clock.Step(time.Minute)
		return gets("issued-4")(err)
	})
	issuer.set(answers("text/plain", ""), "")
	w.until(t, "without a new one", func(err error) bool {
		w.clock.Step(time.Second)
		return err != nil && failureIn(t, err).Reason == query.ReasonCredentials
	})
	if diff := cmp.Diff([]string{"Bearer issued-1", "Bearer issued-2", "Bearer issued-3", "Bearer issued-4"}, seen); diff != "" {
		t.Errorf("the source saw (-want +got):\n%s", diff)
	}
	issuer.mu.Lock()
	defer issuer.mu.Unlock()
	want := []string{"id:hunter2 client_credentials read query", "id:rotated client_credentials read query"}
	if diff := cmp.Diff(want, slices.Compact(issuer.logins)); diff != "" {
		t.Errorf("the authorization server saw (-want +got):\n%s", diff)
	}
}

// An authorization server that never answers delays no request.
func TestOAuth2Hangs(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	issuer, change := newIssuer(t, func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-release
	})
	t.Cleanup(func() { close(release) })
	w := newWorld(t, answers("application/json", oneSample), change)
	w.secrets.set("client", map[string]string{"client-id": "id", "client-secret": "hunter2"})
	w.requestTokens(t)
	for i := range 2 * sourceclient.DefaultMaxRequests {
		_, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
		if f := failureIn(t, err); f.Reason != query.ReasonCredentials || !strings.Contains(f.Message, "a token of the authorization server "+issuer.host+" was not requested yet") {
			t.Fatalf("request %d: %v", i, f)
		}
		<-asked
	}
}

// Without a token the source is not asked, which is a failure of the credentials that names the authorization
// server. No message has the client's secret or a token.
func TestOAuth2Failures(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = fmt.Fprintf(w, "got %s %s", r.Header.Get("Authorization"), body)
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		change func(*v1alpha1.PrometheusSource)
		// source answers requests with a token; nil if there must be none.
		source http.HandlerFunc
		want   string
	}{
		"refused":      {answer: echo, want: "cannot fetch token: 401"},
		"redirected":   {answer: http.RedirectHandler("https://elsewhere.example/", http.StatusTemporaryRedirect).ServeHTTP, want: "cannot fetch token: 307"},
		"no token":     {answer: answers("application/json", `{}`), want: "missing access_token"},
		"endless":      {answer: func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, io.LimitReader(zeros{}, 64<<20)) }, want: "cannot parse json"},
		"not verified": {answer: grant("issued", 60), change: func(s *v1alpha1.PrometheusSource) { s.TLS = v1alpha1.SourceTLS{InsecureSkipTLSVerify: true} }, want: "signed by unknown authority"},
		"token echoed": {answer: grant("issued-secret", 60), source: echo, want: "got Bearer " + sourceclient.Redacted},
	} {
		t.Run(name, func(t *testing.T) {
			issuer, change := newIssuer(t, tc.answer)
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				if tc.source == nil {
					t.Error("the source was asked")
					return
				}
				tc.source(rw, r)
			}, func(s *v1alpha1.PrometheusSource) {
				change(s)
				if tc.change != nil {
					tc.change(s)
				}
			})
			w.secrets.set("client", map[string]string{"client-id": "the id", "client-secret": "hunter2 & more"})
			w.requestTokens(t)
			var f *query.Failure
			w.until(t, tc.want, func(err error) bool {
				f = failureIn(t, err)
				return !strings.Contains(f.Message, "not requested yet")
			})
			reason, host := query.ReasonCredentials, issuer.host
			if tc.source != nil {
				reason, host = query.ReasonUnauthorized, ""
			}
			if f.Reason != reason || !strings.Contains(f.Message, tc.want) || !strings.Contains(f.Message, host) {
				t.Errorf("got %s: %q, want %s with %q and %q", f.Reason, f.Message, reason, tc.want, host)
			}
			for _, hidden := range []string{"hunter2", "issued-secret", "dGhlK2lk"} {
				if strings.Contains(f.Message, hidden) {
					t.Errorf("got %q, with %q", f.Message, hidden)
				}
			}
		})
	}
}

// zeros is endless.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
