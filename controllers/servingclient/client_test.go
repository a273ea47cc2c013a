// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

var (
	v1      = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
	v1beta1 = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
)

// server starts a TLS server and returns the pod that it is. httptest's
// certificate is for example.com.
func server(t *testing.T, handler http.Handler) Pod {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	// Handshakes that clients refuse are what some tests are about.
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return Pod{
		Address: s.Listener.Addr().String(), ServerName: "example.com", Token: "secret-token",
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
	}
}

// paths answers with fixed bodies, and 404 elsewhere.
func paths(bodies map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := bodies[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, body)
	})
}

func resources(version, list string) string {
	return fmt.Sprintf(`{"kind":"APIResourceList","groupVersion":"metrics.k8s.io/%s","resources":[%s]}`, version, list)
}

func TestAsk(t *testing.T) {
	nodes := `{"name":"nodes","kind":"NodeMetrics"}`
	list := func(version string) string {
		return `{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/` + version + `","metadata":{},"items":[]}`
	}
	cases := map[string]struct {
		bodies map[string]string
		want   *Answer
		err    string
	}{
		"both versions and sources": {
			bodies: map[string]string{
				"/apis/metrics.k8s.io/v1": resources("v1", nodes), "/apis/metrics.k8s.io/v1beta1": resources("v1beta1", nodes),
				"/apis/metrics.k8s.io/v1/nodes": list("v1"), "/apis/metrics.k8s.io/v1beta1/nodes": list("v1beta1"),
				"/sources": `{"observedGeneration":3,"kubelets":{"nodes":2,"healthy":1,"failures":[{"reason":"Timeout","count":1,"nodes":["a"],"message":"m"}]}}`,
			},
			want: &Answer{
				Serves: map[schema.GroupVersion]bool{v1: true, v1beta1: true},
				Sources: &v1alpha1.SourceReport{ObservedGeneration: 3, Kubelets: v1alpha1.KubeletReport{
					Nodes: 2, Healthy: 1,
					Failures: []v1alpha1.KubeletFailure{{Reason: v1alpha1.ScrapeTimeout, Count: 1, Nodes: []string{"a"}, Message: "m"}},
				}},
			},
		},
		"one version": {
			bodies: map[string]string{
				"/sources":                     "{}",
				"/apis/metrics.k8s.io/v1beta1": resources("v1beta1", nodes), "/apis/metrics.k8s.io/v1beta1/nodes": list("v1beta1"),
			},
			want: &Answer{Serves: map[schema.GroupVersion]bool{v1: false, v1beta1: true}, Sources: &v1alpha1.SourceReport{}},
		},
		"a version without resources is not served": {
			bodies: map[string]string{"/apis/metrics.k8s.io/v1": resources("v1", ""), "/sources": "{}"},
			want:   &Answer{Serves: map[schema.GroupVersion]bool{v1: false, v1beta1: false}, Sources: &v1alpha1.SourceReport{}},
		},
		"an answer for another version does not count": {
			bodies: map[string]string{"/apis/metrics.k8s.io/v1": resources("v1beta1", nodes), "/sources": "{}"},
			want:   &Answer{Serves: map[schema.GroupVersion]bool{v1: false, v1beta1: false}, Sources: &v1alpha1.SourceReport{}},
		},
		"discovery is garbage": {
			bodies: map[string]string{"/apis/metrics.k8s.io/v1": "<html>"},
			err:    "read the answer to /apis/metrics.k8s.io/v1: invalid character",
		},
		"discovery is huge": {
			bodies: map[string]string{"/apis/metrics.k8s.io/v1": `"` + strings.Repeat("x", maxBody) + `"`},
			err:    "longer than 1048576 bytes",
		},
		"sources are of another shape": {
			bodies: map[string]string{"/sources": `{"kubelets":[]}`},
			err:    "read the answer to /sources",
		},
		"no report of sources": {bodies: map[string]string{}, err: "ask /sources: answered 404 Not Found"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := NewClient(nil).Probe(t.Context(), server(t, paths(tc.bodies)), []schema.GroupVersion{v1, v1beta1})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v, want %q in it", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(Answer{}, "Chain", "Consumers", "ConsumersError")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Which certificate a pod serves is known whether it can be verified or not.
func TestAskTellsTheCertificate(t *testing.T) {
	pod := server(t, paths(map[string]string{v1alpha1.SourcesPath: "{}"}))
	block, _ := pem.Decode(pod.CABundle)
	got, err := NewClient(nil).Probe(t.Context(), pod, []schema.GroupVersion{v1})
	if err != nil || len(got.Chain) != 1 || !bytes.Equal(got.Chain[0].Raw, block.Bytes) {
		t.Errorf("got %+v, %v, want the server's certificate", got, err)
	}
	expired := x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time 2026-11-01T12:00:01Z is after"}
	cases := map[string]struct {
		err  error
		want string
	}{
		"another authority": {x509.UnknownAuthorityError{}, "its certificate cannot be verified: x509: certificate signed by unknown authority"},
		"expired":           {expired, "its certificate cannot be verified: it, or its authority, has expired or is not valid yet"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := stableError(&url.Error{Op: "Get", URL: "https://192.0.2.1/", Err: &tls.CertificateVerificationError{
				UnverifiedCertificates: []*x509.Certificate{{Raw: []byte("leaf")}}, Err: tc.err,
			}})
			var untrusted *UntrustedError
			if !errors.As(err, &untrusted) || len(untrusted.Chain) != 1 || err.Error() != tc.want {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	pod.ServerName = "metrics.ns.svc"
	var untrusted *UntrustedError
	if _, err := NewClient(nil).Probe(t.Context(), pod, []schema.GroupVersion{v1}); !errors.As(err, &untrusted) ||
		!bytes.Equal(untrusted.Chain[0].Raw, block.Bytes) {
		t.Errorf("for another name: %v", err)
	}
}

func TestAskSendsTheToken(t *testing.T) {
	pod := server(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret-token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		paths(map[string]string{v1alpha1.SourcesPath: "{}"}).ServeHTTP(w, r)
	}))
	if _, err := NewClient(nil).Probe(t.Context(), pod, []schema.GroupVersion{v1}); err != nil {
		t.Errorf("with the token: %v", err)
	}
	pod.Token = "another"
	_, err := NewClient(nil).Probe(t.Context(), pod, []schema.GroupVersion{v1})
	if !errors.Is(err, ErrUnauthorized) || !strings.HasPrefix(err.Error(), "ask /apis/metrics.k8s.io/v1: answered 401") {
		t.Errorf("with another token: %v, want %v", err, ErrUnauthorized)
	}
}

// A pod that is not who it should be gets no token.
func TestAskVerifiesThePod(t *testing.T) {
	asked := false
	pod := server(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	cases := map[string]struct {
		change func(*Pod)
		err    string
	}{
		"another name":         {func(p *Pod) { p.ServerName = "metrics.ns.svc" }, "not metrics.ns.svc"},
		"no authority":         {func(p *Pod) { p.CABundle = nil }, "no authority"},
		"authority is rubbish": {func(p *Pod) { p.CABundle = []byte("rubbish") }, "no authority"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := pod
			tc.change(&p)
			if _, err := NewClient(nil).Probe(t.Context(), p, []schema.GroupVersion{v1}); err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q in it", err, tc.err)
			}
		})
	}
	if asked {
		t.Error("a request, with the token, reached a pod that was not verified")
	}
}

// The token follows no redirect.
func TestAskFollowsNoRedirect(t *testing.T) {
	reached := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer elsewhere.Close()
	pod := server(t, http.RedirectHandler(elsewhere.URL, http.StatusFound))
	_, err := NewClient(nil).Probe(t.Context(), pod, []schema.GroupVersion{v1})
	if err == nil || !strings.Contains(err.Error(), "302") || reached {
		t.Errorf("error %v, redirect followed: %t", err, reached)
	}
}

// The same failure reads the same each time: it ends in a condition.
func TestErrorsAreStable(t *testing.T) {
	pod := server(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}))
	refused := pod
	refused.Address = "127.0.0.1:1"
	cases := map[string]struct {
		dial Dial
		pod  Pod
	}{
		"closed":  {pod: pod},
		"refused": {pod: refused},
		"reset": {pod: pod, dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: 40_000}, Err: errors.New("connection reset by peer")}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var messages []string
			for range 3 {
				_, err := NewClient(tc.dial).Probe(t.Context(), tc.pod, []schema.GroupVersion{v1})
				if err == nil {
					t.Fatal("no error")
				}
				messages = append(messages, err.Error())
			}
			if messages[0] != messages[1] || messages[1] != messages[2] || strings.Contains(messages[0], "127.0.0.1") {
				t.Errorf("messages differ, or tell of addresses: %q", messages)
			}
		})
	}
}

func TestTimeoutIsStable(t *testing.T) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewClient(dial).Probe(ctx, server(t, http.NotFoundHandler()), []schema.GroupVersion{v1}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that the context was cancelled", err)
	}
	timeout := stableError(fmt.Errorf("Get: %w", &net.OpError{Op: "dial", Err: context.DeadlineExceeded}))
	if want := "no answer within 5s"; timeout.Error() != want {
		t.Errorf("a timeout reads %q, want %q", timeout, want)
	}
}
