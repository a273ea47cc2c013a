// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

func TestRequest(t *testing.T) {
	ca := newAuthority(t)
	tests := map[string]struct {
		node *Node
		port int32
		want string
	}{
		"IPv4":             {testNode("n1", "192.0.2.1"), 0, "https://192.0.2.1:10250/metrics/resource"},
		"IPv6":             {testNode("n1", "2001:db8::1"), 0, "https://[2001:db8::1]:10250/metrics/resource"},
		"port of the node": {&Node{Name: "n1", KubeletPort: 10251, Addresses: testNode("", "192.0.2.1").Addresses}, 0, "https://192.0.2.1:10251/metrics/resource"},
		"port of settings": {&Node{Name: "n1", KubeletPort: 10251, Addresses: testNode("", "192.0.2.1").Addresses}, 443, "https://192.0.2.1:443/metrics/resource"},
		"path of the node": {&Node{Name: "n1", Path: "/virtual/resource", Addresses: testNode("", "192.0.2.1").Addresses}, 0, "https://192.0.2.1:10250/virtual/resource"},
		"name":             {&Node{Name: "n1", Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "Node-1.example"}}}, 0, "https://Node-1.example:10250/metrics/resource"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1", "2001:db8::1", "node-1.example"), serve(nodeBody))
			cfg := testSettings()
			cfg.Port = tt.port
			s := newTestSource(t, clock.RealClock{}, ca.pem, kubelet.dial, cfg)
			o := s.scrapeOnce(t.Context(), tt.node)
			if o.failure != nil || o.url != tt.want {
				t.Fatalf("scrape of %s: %v, want %s", o.url, o.failure, tt.want)
			}
			requests, _ := kubelet.seen()
			if len(requests) != 1 {
				t.Fatalf("%d requests, want 1", len(requests))
			}
			r := requests[0]
			got := []string{r.Method, "https://" + r.Host + r.RequestURI, r.Proto, r.Header.Get("Authorization"), r.Header.Get("User-Agent"), r.Header.Get("Accept"), r.Header.Get("Accept-Encoding")}
			want := []string{"GET", tt.want, "HTTP/1.1", "Bearer secret", "metrics-backend-serving/test", "text/plain;version=0.0.4", ""}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func checkFailure(t *testing.T, o *scrapeResult, want v1alpha1.ScrapeReason, message string) {
	t.Helper()
	switch {
	case o == nil:
		t.Fatal("the scrape was cancelled")
	case o.failure == nil && want != "":
		t.Fatalf("the scrape succeeded, want %s", want)
	case o.failure != nil && o.failure.reason != want:
		t.Fatalf("the scrape failed with %s: %v, want %q", o.failure.reason, o.failure, want)
	case o.failure != nil && !strings.Contains(o.failure.Error(), message):
		t.Errorf("the failure %q does not say %q", o.failure, message)
	}
}

func TestAnswers(t *testing.T) {
	ca := newAuthority(t)
	elsewhere := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), serve(nodeBody))
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); _, _ = w.Write([]byte(nodeBody)) }
	}
	abort := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush(); panic(http.ErrAbortHandler) }

	tests := map[string]struct {
		handler http.HandlerFunc
		want    v1alpha1.ScrapeReason
		message string
	}{
		"good":     {serve(nodeBody), "", ""},
		"401":      {status(401), v1alpha1.ScrapeUnauthorized, "authentication.webhook.enabled"},
		"403":      {status(403), v1alpha1.ScrapeForbidden, "nodes/metrics"},
		"404":      {status(404), v1alpha1.ScrapeBadStatus, v1alpha1.AnnotationMetricsPath},
		"500":      {status(500), v1alpha1.ScrapeBadStatus, "HTTP 500"},
		"204":      {status(204), v1alpha1.ScrapeBadStatus, "HTTP 204"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, v1alpha1.ScrapeBadStatus, "redirects are not followed"},
		"permanent one": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusPermanentRedirect)
		}, v1alpha1.ScrapeBadStatus, "redirects are not followed"},
		"empty":          {serve(""), v1alpha1.ScrapeMalformedBody, "no resource metrics"},
		"garbage":        {serve("\x00\xff<html>\n"), v1alpha1.ScrapeMalformedBody, "no resource metrics"},
		"nothing usable": {serve("node_cpu_usage_seconds_total NaN\nnode_memory_working_set_bytes -1\n"), v1alpha1.ScrapeMalformedBody, `NotFinite: 1, Negative: 1; the first: "node_cpu_usage_seconds_total NaN"`},
		"clock ahead":    {serve(fmt.Sprintf("node_cpu_usage_seconds_total 1 %d\n", time.Now().Add(10*time.Minute).UnixMilli())), v1alpha1.ScrapeMalformedBody, "check the node's clock"},
		"kubelet failed": {serve("resource_scrape_error 1\n"), v1alpha1.ScrapeMalformedBody, "resource_scrape_error"},
		"compressed": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			// What does not compress is sent as it is.
			_, _ = z.Write([]byte(strings.Repeat(nodeBody, 10)))
			_ = z.Close()
		}, v1alpha1.ScrapeMalformedBody, ""},
		"reset before the answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, v1alpha1.ScrapeConnectionFailed, "connection broke"},
		"reset in the body": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(nodeBody))
			abort(w)
		}, v1alpha1.ScrapeConnectionFailed, "before the answer was complete"},
		"shorter than announced": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(nodeBody))
			abort(w)
		}, v1alpha1.ScrapeConnectionFailed, "before the answer was complete"},
		"announced too large": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2000000000")
			_, _ = w.Write([]byte(nodeBody))
			abort(w)
		}, v1alpha1.ScrapeBodyTooLarge, "maxResponseSize"},
		"huge header": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
			_, _ = w.Write([]byte(nodeBody))
		}, v1alpha1.ScrapeConnectionFailed, "longer than 65536 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), tt.handler)
			s := newTestSource(t, clock.RealClock{}, ca.pem, kubelet.dial, testSettings())
			checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), tt.want, tt.message)
		})
	}
	if requests, _ := elsewhere.seen(); len(requests) > 0 {
		t.Errorf("a redirect was followed: %d requests", len(requests))
	}
}

// TestHugeBody scrapes a body that does not end.
func TestHugeBody(t *testing.T) {
	ca := newAuthority(t)
	line := []byte("# " + strings.Repeat("x", 8<<10) + "\n")
	kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	s := newTestSource(t, clock.RealClock{}, ca.pem, kubelet.dial, testSettings())
	checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), v1alpha1.ScrapeBodyTooLarge, "maxResponseSize")
}

func TestHanging(t *testing.T) {
	tests := map[string]func(w http.ResponseWriter, r *http.Request, hang func()){
		"before the answer": func(_ http.ResponseWriter, _ *http.Request, hang func()) { hang() },
		"in the body": func(w http.ResponseWriter, _ *http.Request, hang func()) {
			_, _ = w.Write([]byte("node_cpu_usage_seconds_total 1\n"))
			_ = http.NewResponseController(w).Flush()
			hang()
		},
	}
	for name, handler := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, certificate tls.Certificate) {
				f := newBubble(t, testSettings(), certificate, func(_ string, w http.ResponseWriter, r *http.Request) {
					handler(w, r, func() { <-r.Context().Done() })
				})
				f.stop() // no scrapes but this one
				begin := time.Now()
				checkFailure(t, f.source.scrapeOnce(t.Context(), f.node(0)), v1alpha1.ScrapeTimeout, "10s")
				if took := time.Since(begin); took != testSettings().Timeout {
					t.Errorf("the scrape took %s, want its timeout", took)
				}
			})
		})
	}
	t.Run("in the handshake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			closed := make(chan error, 1)
			// The peer reads, and sends nothing.
			dial := func(context.Context, string, string) (net.Conn, error) {
				client, server := net.Pipe()
				go func() { _, err := io.Copy(io.Discard, server); closed <- err }()
				return client, nil
			}
			cfg := testSettings()
			cfg.TLS = v1alpha1.KubeletTLSInsecureSkipTLSVerify
			s := newTestSource(t, clock.RealClock{}, nil, dial, cfg)
			checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), v1alpha1.ScrapeTimeout, "10s")
			<-closed // the dial does not outlive the scrape
		})
	})
	t.Run("and the source stops", func(t *testing.T) {
		inBubble(t, func(t *testing.T, certificate tls.Certificate) {
			f := newBubble(t, testSettings(), certificate, func(_ string, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			f.stop()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begin := time.Now()
			if o := f.source.scrapeOnce(ctx, f.node(0)); o != nil {
				t.Errorf("the result of a scrape that was canceled: %+v", o)
			}
			if took := time.Since(begin); took != time.Second {
				t.Errorf("the scrape ended after %s, want 1s", took)
			}
		})
	})
}

// TestStaleSamples: a node of which nothing can be served is not healthy, whether its kubelet
// is frozen or its clock is behind.
func TestStaleSamples(t *testing.T) {
	body := func(offset float64, seconds ...float64) (texts []string) {
		for _, at := range seconds {
			a := answers(says("a", 100+at, at-offset))
			a.node = &reported{cpu: 100 + at, at: at - offset, memory: 9, swap: missing}
			texts = append(texts, a.text())
		}
		return texts
	}
	fresh := body(0, 0, 15, 30)
	tests := map[string]struct {
		bodies []string // at 0, 15 s, …
		want   v1alpha1.ScrapeReason
		text   string
		age    time.Duration
	}{
		"fresh":                   {bodies: fresh},
		"frozen for a short time": {bodies: []string{fresh[0], fresh[0], fresh[0]}},
		"frozen": {
			bodies: []string{fresh[0], fresh[1], fresh[1], fresh[1], fresh[1], fresh[1], fresh[1], fresh[1], fresh[1]},
			want:   v1alpha1.ScrapeStaleSamples, text: "1m45s old and is not served: the kubelet does not renew its samples", age: 105 * time.Second,
		},
		"frozen and thawed":   {bodies: append(body(600, 0, 15), body(0, 30)...)},
		"clock behind":        {bodies: body(600, 0, 15, 30), want: v1alpha1.ScrapeStaleSamples, text: "10m0s old and is not served: it is renewed, so the node's clock is behind", age: 10 * time.Minute},
		"clock hours behind":  {bodies: body(9000, 0, 15), want: v1alpha1.ScrapeStaleSamples, text: "2h30m0s old", age: 150 * time.Minute},
		"first body is stale": {bodies: body(600, 0), want: v1alpha1.ScrapeStaleSamples, text: "restart the kubelet, and check the clock", age: 10 * time.Minute},
		"only the node's sample is frozen": {bodies: func() (texts []string) {
			for at := 0.0; at < 120; at += 15 {
				a := answers(says("a", 100+at, at))
				a.node = &reported{cpu: 100, at: 0, memory: 9, swap: missing}
				texts = append(texts, a.text())
			}
			return texts
		}()},
	}
	ca := newAuthority(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(epoch)
			var current atomic.Value
			kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, current.Load().(string)) })
			s := newTestSource(t, clock, ca.pem, kubelet.dial, testSettings())
			var o *scrapeResult
			for i, text := range tt.bodies {
				current.Store(text)
				clock.SetTime(sec(float64(15 * i)))
				o = s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1"))
			}
			checkFailure(t, o, tt.want, tt.text)
			if o.failure != nil && o.failure.sampleAge != tt.age {
				t.Errorf("age of the newest sample %s, want %s", o.failure.sampleAge, tt.age)
			}
		})
	}
}

func TestScrapePublishes(t *testing.T) {
	ca := newAuthority(t)
	clock := clocktesting.NewFakeClock(epoch)
	var body atomic.Value
	kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body.Load().(string)) })
	s := newTestSource(t, clock, ca.pem, kubelet.dial, testSettings())
	nodeKey, podKey := samplestore.Key{Name: "n1"}, samplestore.Key{Namespace: "ns", Name: "p"}
	s.store.Nodes.SetMeta(nodeKey, &samplestore.Meta{UID: "u"})
	s.store.Pods.SetMeta(podKey, &samplestore.Meta{UID: "u"})
	scrape := func(at int, text string) {
		t.Helper()
		body.Store(text)
		clock.SetTime(sec(float64(at)))
		checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), "", "")
	}
	text := func(cpu, at float64) string {
		a := answers(says("a", cpu, at))
		a.node = &reported{cpu: cpu, at: at, memory: 9, swap: missing}
		return a.text()
	}
	scrape(0, text(100, 0))
	if s.store.Nodes.Get(nodeKey) != nil || s.store.Pods.Get(podKey) != nil {
		t.Error("points after one sample")
	}
	scrape(15, text(130, 15)+"container_cpu_usage_seconds_total{} 1\n")
	node, pod := s.store.Nodes.Get(nodeKey), s.store.Pods.Get(podKey)
	if node == nil || pod == nil || node.Point.Usages[0].CPU != 2e9 || pod.Point.Usages[0].CPU != 2e9 {
		t.Fatalf("points after two samples: %+v, %+v", node, pod)
	}
}
