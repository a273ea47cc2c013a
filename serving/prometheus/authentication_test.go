// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// The token of the ServiceAccount is that of the audience in the spec, and the newest one.
func TestServiceAccountToken(t *testing.T) {
	var seen []string
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		answers("application/json", oneSample)(rw, r)
	}, func(s *v1alpha1.PrometheusSource) {
		s.Authentication.ServiceAccountToken = &v1alpha1.SourceServiceAccountToken{Audience: "thanos"}
	})
	turn, failure := "first", error(nil)
	w.source.tokens = func(audience string) (*oauth2.Token, error) {
		return &oauth2.Token{AccessToken: audience + "-" + turn}, failure
	}
	evaluate := func() error {
		_, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
		return err
	}
	for _, turn = range []string{"first", "second"} {
		if err := evaluate(); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"Bearer thanos-first", "Bearer thanos-second"}, seen); diff != "" {
		t.Errorf("the server saw (-want +got):\n%s", diff)
	}
	failure = errors.New("forbidden")
	w.clock.Step(maxPending)
	_ = evaluate()
	w.clock.Step(maxPending)
	if f := failureIn(t, evaluate()); f.Reason != query.ReasonCredentials || !strings.Contains(f.Message, "authentication.serviceAccountToken: it has yet to be read: forbidden") {
		t.Errorf("without a token: %v", f)
	}
}

// issuer is an authorization server.
type issuer struct {
	mu sync.Mutex
	// logins are those of the requests for tokens.
	logins []string
	answer http.HandlerFunc
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	id, secret, _ := r.BasicAuth()
	i.logins = append(i.logins, fmt.Sprintf("%s:%s %s %s", id, secret, r.FormValue("grant_type"), r.FormValue("scope")))
	i.answer(w, r)
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
	return i, func(s *v1alpha1.PrometheusSource) {
		s.Authentication.OAuth2 = &v1alpha1.SourceOAuth2{
			TokenURL: server.URL + "/token", Client: v1alpha1.SecretReference{Name: "client"}, Scopes: []string{"read", "query"},
		}
	}
}

// A source gets the token that is issued for the client, and never the client's secret. A token
// that is valid is used again, and a changed Secret with the next request.
func TestOAuth2(t *testing.T) {
	issuer, change := newIssuer(t, grant("issued-1", 3600))
	var seen []string
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		answers("application/json", oneSample)(rw, r)
	}, change)
	ask := func(secret string, answer http.HandlerFunc) {
		t.Helper()
		issuer.answer = answer
		w.secrets.set("client", map[string]string{"client-id": "id\n", "client-secret": secret})
		if _, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant); err != nil {
			t.Fatal(err)
		}
	}
	ask("hunter2", grant("issued-1", 3600))
	ask("hunter2", grant("issued-2", 3600))
	ask("rotated", grant("issued-3", 1)) // shorter than x/oauth2 uses a token again
	ask("rotated", grant("issued-4", 3600))
	if diff := cmp.Diff([]string{"Bearer issued-1", "Bearer issued-1", "Bearer issued-3", "Bearer issued-4"}, seen); diff != "" {
		t.Errorf("the source saw (-want +got):\n%s", diff)
	}
	want := []string{"id:hunter2 client_credentials read query", "id:rotated client_credentials read query", "id:rotated client_credentials read query"}
	if diff := cmp.Diff(want, issuer.logins); diff != "" {
		t.Errorf("the authorization server saw (-want +got):\n%s", diff)
	}
}

// Without a token the source is not asked, and no message has the client's secret or a token.
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
		"not verified": {answer: grant("issued", 60), change: func(s *v1alpha1.PrometheusSource) { s.TLS = v1alpha1.SourceTLS{InsecureSkipVerify: true} }, want: "not signed by an authority"},
		"token echoed": {answer: grant("issued-secret", 60), source: echo, want: "got Bearer " + redacted},
	} {
		t.Run(name, func(t *testing.T) {
			_, change := newIssuer(t, tc.answer)
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
			_, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
			message := failureIn(t, err).Message
			if !strings.Contains(message, tc.want) {
				t.Errorf("got %q, want %q in it", message, tc.want)
			}
			for _, hidden := range []string{"hunter2", "issued-secret", "dGhlK2lk"} {
				if strings.Contains(message, hidden) {
					t.Errorf("got %q, with %q", message, hidden)
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
