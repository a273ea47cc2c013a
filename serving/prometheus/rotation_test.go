// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

// Each credential is read for each request: a new one is used at once, and a missing
// one heals when it comes.
func TestRotation(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.PrometheusSource)
		// secret is its content by turn; shown is what the server sees of it.
		secret func(turn string) map[string]string
		shown  func(*http.Request) string
		want   func(turn string) string
	}{
		"bearer token": {
			change: func(s *v1alpha1.PrometheusSource) {
				s.Authentication.BearerTokenSecretKeyRef = secretKey("login", "token")
			},
			secret: func(turn string) map[string]string { return map[string]string{"token": "token-" + turn + "\n"} },
			shown:  func(r *http.Request) string { return r.Header.Get("Authorization") },
			want:   func(turn string) string { return "Bearer token-" + turn },
		},
		"basic": {
			change: func(s *v1alpha1.PrometheusSource) {
				s.Authentication.BasicAuthSecretRef = &v1alpha1.SecretReference{Name: "login"}
			},
			secret: func(turn string) map[string]string {
				return map[string]string{"username": "user", "password": "pass " + turn}
			},
			shown: func(r *http.Request) string {
				user, password, _ := r.BasicAuth()
				return user + ":" + password
			},
			want: func(turn string) string { return "user:pass " + turn },
		},
		"tenant's header": {
			change: func(s *v1alpha1.PrometheusSource) {
				s.Headers = []v1alpha1.SourceHeader{{Name: "x-scope-orgid", ValueSecretKeyRef: secretKey("login", "tenant")}}
			},
			secret: func(turn string) map[string]string { return map[string]string{"tenant": turn} },
			shown:  func(r *http.Request) string { return r.Header.Get("X-Scope-OrgID") },
			want:   func(turn string) string { return turn },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var shown atomic.Value
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				shown.Store(tc.shown(r))
				answers("application/json", oneSample)(rw, r)
			}, tc.change)
			for _, turn := range []string{"one", "two", "", "three"} {
				if turn == "" {
					w.secrets.remove("login")
					_, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
					if f := failureIn(t, err); f.Reason != query.ReasonCredentials {
						t.Errorf("without a Secret: %v", err)
					}
					if h := w.source.Health(); h.Healthy || h.Reason != string(query.ReasonCredentials) {
						t.Errorf("health %+v", h)
					}
					continue
				}
				w.secrets.set("login", tc.secret(turn))
				if _, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant); err != nil {
					t.Fatal(err)
				}
				if got := shown.Load(); got != tc.want(turn) {
					t.Errorf("the server saw %q, want %q", got, tc.want(turn))
				}
			}
		})
	}
}

// The name of a Secret changes, or a source gets its first: until it can be read, what
// is in force stays in force, for a while.
func TestAnotherSecret(t *testing.T) {
	for name, first := range map[string]*v1alpha1.SecretKeyReference{"the first": nil, "another": secretKey("old", "token")} {
		t.Run(name, func(t *testing.T) {
			var shown atomic.Value
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				shown.Store(r.Header.Get("Authorization"))
				answers("application/json", oneSample)(rw, r)
			}, func(s *v1alpha1.PrometheusSource) { s.Authentication.BearerTokenSecretKeyRef = first })
			before := ""
			if first != nil {
				before = "Bearer old-token"
			}
			w.secrets.set("old", map[string]string{"token": "old-token"})
			w.secrets.set("new", map[string]string{"token": "new-token"})
			ask := func(want string) {
				t.Helper()
				if _, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant); err != nil || shown.Load() != want {
					t.Errorf("the server saw %q, want %q; error %v", shown.Load(), want, err)
				}
			}
			fails := func(says string) {
				t.Helper()
				_, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
				if f := failureIn(t, err); f.Reason != query.ReasonCredentials || !strings.Contains(f.Message, says) {
					t.Errorf("%v, want it to say %q", f, says)
				}
			}
			ask(before)
			spec := w.spec
			spec.Authentication.BearerTokenSecretKeyRef = secretKey("new", "token")
			w.secrets.yet("new", errors.New("Forbidden"))
			w.secrets.remove("old")
			if err := w.source.Apply(spec); err != nil {
				t.Fatal(err)
			}
			ask(before)
			w.clock.Step(sourceclient.MaxPending - time.Second)
			ask(before)
			w.clock.Step(2 * time.Second)
			fails(`the Secret "new" for authentication.bearerTokenSecretKeyRef is not known yet: Forbidden`)
			w.secrets.yet("new", nil)
			ask("Bearer new-token")

			// It does not count again later, and a missing Secret is an error at once.
			w.secrets.yet("new", errors.New("no answer yet"))
			ask("Bearer new-token")
			w.secrets.yet("new", nil)
			w.secrets.remove("new")
			fails("create it")

			// Another server's answers are none of this one.
			w.secrets.yet("new", errors.New("no answer yet"))
			spec.URL += "/prefix"
			if err := w.source.Apply(spec); err != nil {
				t.Fatal(err)
			}
			fails("no answer yet")
		})
	}
}

// mutualServer wants a client certificate of one authority, and shows one of its own.
func mutualServer(t *testing.T, handler http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = quiet
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func keyPair(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: name}, signer)
	if err != nil {
		t.Fatal(err)
	}
	k, err := keyutil.MarshalPrivateKeyToPEM(signer)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: c.Raw})), string(k)
}

func TestRotationOfClientCertificate(t *testing.T) {
	var peers atomic.Value
	server := mutualServer(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		peers.Store(r.TLS.PeerCertificates[0].Subject.CommonName)
		answers("application/json", oneSample)(rw, r)
	}))
	secrets := &secretData{}
	secrets.set("ca", map[string]string{"ca.crt": certificatePEM(server)})
	source, err := New(sourceclient.Options{Name: "main", Secrets: secrets.get, Clock: clock.RealClock{}}, v1alpha1.PrometheusSource{
		URL: server.URL,
		TLS: v1alpha1.SourceTLS{CASecretKeyRef: secretKey("ca", "ca.crt"), ClientCertificateSecretRef: &v1alpha1.SecretReference{Name: "client"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if _, err := source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant); failureIn(t, err).Reason != query.ReasonCredentials {
		t.Errorf("without a certificate: %v", err)
	}
	first, firstKey := keyPair(t, "first")
	second, secondKey := keyPair(t, "second")
	secrets.set("client", map[string]string{"tls.crt": first, "tls.key": secondKey})
	if _, err := source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant); failureIn(t, err).Reason != query.ReasonCredentials {
		t.Errorf("with another's key: %v", err)
	}
	var seen []string
	for _, pair := range [][2]string{{first, firstKey}, {second, secondKey}} {
		secrets.set("client", map[string]string{"tls.crt": pair[0], "tls.key": pair[1]})
		if _, err := source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, peers.Load().(string))
	}
	if seen[0] == seen[1] {
		t.Errorf("the server saw %q twice", seen[0])
	}
	if err := source.Apply(v1alpha1.PrometheusSource{URL: server.URL, TLS: v1alpha1.SourceTLS{CASecretKeyRef: secretKey("ca", "ca.crt")}}); err != nil {
		t.Fatal(err)
	}
	_, err = source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
	if f := failureIn(t, err); f.Reason != query.ReasonConnectionFailed || !strings.Contains(f.Message, "does it want a client certificate?") {
		t.Errorf("when no certificate is shown any more: %v", f)
	}
}

// The authority may change while the server keeps its certificate, and back.
func TestRotationOfAuthority(t *testing.T) {
	for name, tc := range map[string]struct {
		tls     v1alpha1.SourceTLS
		objects func(*world) *secretData
		extra   *v1alpha1.ConfigMapKeyReference
		missing string
	}{
		"Secret":    {v1alpha1.SourceTLS{CASecretKeyRef: secretKey("bundle", "ca.pem")}, func(w *world) *secretData { return w.secrets }, nil, `there is no Secret "bundle" for tls.caSecretKeyRef: create it in the backend's namespace`},
		"ConfigMap": {bundleTLS("bundle", "ca.pem"), func(w *world) *secretData { return w.configMaps }, nil, `there is no ConfigMap "bundle" for tls.caConfigMapKeyRef: create it in the backend's namespace`},
		"serving.caConfigMapKeyRef": {
			v1alpha1.SourceTLS{}, func(w *world) *secretData { return w.configMaps }, &v1alpha1.ConfigMapKeyReference{Name: "bundle", Key: "ca.pem"},
			`there is no ConfigMap "bundle" for serving.caConfigMapKeyRef: create it in the backend's namespace`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, answers("application/json", oneSample), func(s *v1alpha1.PrometheusSource) { s.TLS = tc.tls })
			w.options.ExtraCA = func() *v1alpha1.ConfigMapKeyReference { return tc.extra }
			w.start(t)
			objects := tc.objects(w)
			good := certificatePEM(w.server)
			other, _ := keyPair(t, "other")
			for i, turn := range []struct {
				pem    string
				reason query.Reason
			}{
				{pem: good},
				{pem: other, reason: query.ReasonCertificateUntrusted},
				// A bundle of trust-manager has comments.
				{pem: "# other\n" + other + "\n# good\n" + good},
				{pem: "garbage", reason: query.ReasonCredentials},
				{pem: good},
				{reason: query.ReasonCredentials},
				{pem: good},
			} {
				objects.remove("bundle")
				if turn.pem != "" {
					objects.set("bundle", map[string]string{"ca.pem": turn.pem})
				}
				_, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
				switch {
				case turn.reason == "" && err != nil:
					t.Errorf("turn %d: %v", i, err)
				case turn.reason != "" && failureIn(t, err).Reason != turn.reason:
					t.Errorf("turn %d: %v, want %s", i, err, turn.reason)
				case turn.reason != "" && turn.pem == "" && failureIn(t, err).Message != tc.missing:
					t.Errorf("turn %d: %v, want %s", i, err, tc.missing)
				}
			}
		})
	}
}

// Only sources that verify with public authorities need serving.caConfigMapKeyRef.
func TestWithoutExtraCA(t *testing.T) {
	plain := httptest.NewServer(answers("application/json", oneSample))
	defer plain.Close()
	for name, change := range map[string]func(*v1alpha1.PrometheusSource){
		"own CA":       nil,
		"not verified": func(s *v1alpha1.PrometheusSource) { s.TLS = v1alpha1.SourceTLS{InsecureSkipTLSVerify: true} },
		"no TLS":       func(s *v1alpha1.PrometheusSource) { s.URL, s.TLS = plain.URL, v1alpha1.SourceTLS{} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, answers("application/json", oneSample), change)
			w.options.ExtraCA = func() *v1alpha1.ConfigMapKeyReference {
				return &v1alpha1.ConfigMapKeyReference{Name: "missing", Key: "ca.crt"}
			}
			w.start(t)
			if _, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant); err != nil {
				t.Error(err)
			}
		})
	}
}

func bundleTLS(name, key string) v1alpha1.SourceTLS {
	return v1alpha1.SourceTLS{CAConfigMapKeyRef: &v1alpha1.ConfigMapKeyReference{Name: name, Key: key}}
}

// A rotation drops no request under way, and leaves no connection behind.
func TestRotationWithRequestsUnderWay(t *testing.T) {
	const rounds = 5
	asked, release := make(chan struct{}, rounds), make(chan struct{})
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-release
		answers("application/json", oneSample)(rw, r)
	}, nil)
	opened, closed := make(chan struct{}, rounds+1), make(chan struct{}, rounds+1)
	w.options.Dial = countingDial(opened, closed)
	w.start(t)
	good := certificatePEM(w.server)
	done := make(chan error, rounds)
	for range rounds {
		// Another bundle each time, so that each request has a transport of its own.
		extra, _ := keyPair(t, "extra")
		w.secrets.set("ca", map[string]string{"ca.crt": good + extra})
		go func() {
			_, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
			done <- err
		}()
		<-asked
	}
	close(release)
	for range rounds {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	w.source.Close()
	for range rounds {
		<-closed
	}
	if n := len(opened); n != rounds {
		t.Errorf("%d connections were opened for %d transports", n, rounds)
	}
}

func TestSkippedVerification(t *testing.T) {
	w := newWorld(t, answers("application/json", oneSample), func(s *v1alpha1.PrometheusSource) {
		s.TLS = v1alpha1.SourceTLS{InsecureSkipTLSVerify: true, ServerName: "anything.example"}
	})
	if _, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant); err != nil {
		t.Error(err)
	}
}

// TLS below 1.2 is not spoken, whatever the server offers.
func TestOldTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(answers("application/json", oneSample))
	s.Config.ErrorLog = quiet
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	s.StartTLS()
	defer s.Close()
	w := newWorld(t, answers("application/json", oneSample), func(spec *v1alpha1.PrometheusSource) { spec.URL = s.URL })
	w.secrets.set("ca", map[string]string{"ca.crt": certificatePEM(s)})
	_, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
	if f := failureIn(t, err); f.Reason != query.ReasonConnectionFailed {
		t.Errorf("%s: %s", f.Reason, f.Message)
	}
}

// TestAnotherTenantWithAnotherSecret: what one tenant has is no answer for another, while
// the other's Secret has yet to be read either.
func TestAnotherTenantWithAnotherSecret(t *testing.T) {
	w := newWorld(t, answers("application/json", oneSample), func(s *v1alpha1.PrometheusSource) {
		s.Headers = []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", Value: "a"}}
		s.Authentication.BearerTokenSecretKeyRef = secretKey("old", "token")
	})
	w.secrets.set("old", map[string]string{"token": "old-token"})
	w.secrets.yet("new", errors.New("Forbidden"))
	if _, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*v1alpha1.PrometheusSource){
		"header": func(s *v1alpha1.PrometheusSource) {
			s.Headers = []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", Value: "b"}}
		},
		"parameter": func(s *v1alpha1.PrometheusSource) {
			s.QueryParameters = []v1alpha1.SourceQueryParameter{{Name: "tenant", Value: "b"}}
		},
	} {
		spec := w.spec
		spec.Authentication.BearerTokenSecretKeyRef = secretKey("new", "token")
		change(&spec)
		if err := w.source.Apply(spec); err != nil {
			t.Fatal(err)
		}
		answer, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x"}, instant)
		if err == nil {
			t.Fatalf("%s: tenant b is answered %v of tenant a", name, answer.Samples)
		}
		if f := failureIn(t, err); f.Reason != query.ReasonCredentials {
			t.Errorf("%s: %v", name, f)
		}
	}
}
