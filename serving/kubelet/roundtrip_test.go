// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// response returns one with that body, and more header lines.
func response(body string, lines ...string) string {
	header := append([]string{"HTTP/1.1 200 OK", fmt.Sprintf("Content-Length: %d", len(body))}, lines...)
	return strings.Join(header, "\r\n") + "\r\n\r\n" + body
}

// scriptedKubelet writes bytes as they are. Each connection has a script.
type scriptedKubelet struct {
	net.Listener
	mu sync.Mutex
	// requests counts those of each connection.
	requests []int
	// ended receives the index of each connection that the client closed.
	ended chan int
}

// script is what is written for each request of a connection; then it is closed by the
// server, or by the client if the script ends with stay.
type script []string

// stay is the last step of a script: the connection stays open until the client closes it.
const stay = "stay"

func newScriptedKubelet(t *testing.T, certificate tls.Certificate, scripts ...script) *scriptedKubelet {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
		// What is written at once is in one record, as later on each connection.
		DynamicRecordSizingDisabled: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	k := &scriptedKubelet{Listener: listener, ended: make(chan int, len(scripts)+1)}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for i := 0; ; i++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			k.mu.Lock()
			k.requests = append(k.requests, 0)
			k.mu.Unlock()
			if i < len(scripts) {
				go k.run(conn, i, scripts[i])
			} else {
				_ = conn.Close()
			}
		}
	}()
	return k
}

func (k *scriptedKubelet) run(conn net.Conn, i int, steps script) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	for _, step := range steps {
		if _, err := http.ReadRequest(reader); err != nil {
			k.ended <- i
			return
		}
		if step == stay {
			continue
		}
		k.mu.Lock()
		k.requests[i]++
		k.mu.Unlock()
		_, _ = io.WriteString(conn, step)
	}
}

func (k *scriptedKubelet) seen() []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]int{}, k.requests...)
}

// TestConnectionUse checks after which answers a connection is used again, and after
// which failures a request is sent again.
func TestConnectionUse(t *testing.T) {
	certificate := newAuthority(t).issue(nil, "192.0.2.1")
	ok := response(nodeBody)
	long := response("#" + strings.Repeat(" ", 5000) + "\n" + nodeBody)
	const failed = v1alpha1.ScrapeConnectionFailed
	tests := map[string]struct {
		scripts []script
		// want are the outcomes of scrapes, requests those of each connection.
		want     []v1alpha1.ScrapeReason
		requests []int
	}{
		"is used again":                       {[]script{{ok, ok, ok, stay}}, []v1alpha1.ScrapeReason{"", "", ""}, []int{3}},
		"chunks":                              {[]script{{chunked(nodeBody), ok, stay}}, []v1alpha1.ScrapeReason{"", ""}, []int{2}},
		"closed while it was idle":            {[]script{{ok}, {ok, stay}}, []v1alpha1.ScrapeReason{"", ""}, []int{1, 1}},
		"closed at the next request":          {[]script{{ok, ""}, {ok, stay}}, []v1alpha1.ScrapeReason{"", ""}, []int{2, 1}},
		"closed at the next two requests":     {[]script{{ok, ""}, {""}, {ok, stay}}, []v1alpha1.ScrapeReason{"", failed, ""}, []int{2, 1, 1}},
		"closed at the first request":         {[]script{{""}, {ok, stay}}, []v1alpha1.ScrapeReason{failed, ""}, []int{1, 1}},
		"closed after a byte":                 {[]script{{ok, "H"}, {ok, stay}}, []v1alpha1.ScrapeReason{"", failed, ""}, []int{2, 1}},
		"the peer wants it closed":            {[]script{{response(nodeBody, "Connection: close"), stay}, {ok, stay}}, []v1alpha1.ScrapeReason{"", ""}, []int{1, 1}},
		"HTTP/1.0":                            {[]script{{"HTTP/1.0 200 OK\r\n\r\n" + nodeBody}, {ok, stay}}, []v1alpha1.ScrapeReason{"", ""}, []int{1, 1}},
		"more than the body":                  {[]script{{ok + "x", stay}, {ok, stay}}, []v1alpha1.ScrapeReason{"", ""}, []int{1, 1}},
		"more than a long body":               {[]script{{long + "x", stay}, {ok, stay}}, []v1alpha1.ScrapeReason{"", ""}, []int{1, 1}},
		"two responses":                       {[]script{{long + response("node_cpu_usage_seconds_total NaN\n"), stay}, {ok, stay}}, []v1alpha1.ScrapeReason{"", ""}, []int{1, 1}},
		"a status below 100":                  {[]script{{"HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n", stay}, {ok, stay}}, []v1alpha1.ScrapeReason{v1alpha1.ScrapeBadStatus, ""}, []int{1, 1}},
		"an unread body":                      {[]script{{"HTTP/1.1 500 No\r\nContent-Length: 3\r\n\r\nno\n", stay}, {ok, stay}}, []v1alpha1.ScrapeReason{v1alpha1.ScrapeBadStatus, ""}, []int{1, 1}},
		"less than the body":                  {[]script{{response(nodeBody + "x")[:60]}, {ok, stay}}, []v1alpha1.ScrapeReason{failed, ""}, []int{1, 1}},
		"1xx before the answer":               {[]script{{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ok, ok, stay}}, []v1alpha1.ScrapeReason{"", ""}, []int{2}},
		"101":                                 {[]script{{"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", stay}, {ok, stay}}, []v1alpha1.ScrapeReason{v1alpha1.ScrapeBadStatus, ""}, []int{1, 1}},
		"1xx without an end":                  {[]script{{strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 4000)}, {ok, stay}}, []v1alpha1.ScrapeReason{failed, ""}, []int{1, 1}},
		"a header that is almost too long":    {[]script{{response(nodeBody, "X: "+strings.Repeat("x", maxHeader-1<<10)), ok, stay}}, []v1alpha1.ScrapeReason{"", ""}, []int{2}},
		"a header that is too long":           {[]script{{response(nodeBody, "X: "+strings.Repeat("x", maxHeader)), stay}, {ok, stay}}, []v1alpha1.ScrapeReason{failed, ""}, []int{1, 1}},
		"no HTTP":                             {[]script{{"SSH-2.0-OpenSSH_9.9\r\n", stay}, {ok, stay}}, []v1alpha1.ScrapeReason{failed, ""}, []int{1, 1}},
		"another version":                     {[]script{{"HTTP/3.0 200 OK\r\nContent-Length: 0\r\n\r\n", stay}}, []v1alpha1.ScrapeReason{v1alpha1.ScrapeMalformedBody}, []int{1}},
		"two lengths":                         {[]script{{response(nodeBody, "Content-Length: 1"), stay}, {ok, stay}}, []v1alpha1.ScrapeReason{failed, ""}, []int{1, 1}},
		"a chunk without an end":              {[]script{{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx"}, {ok, stay}}, []v1alpha1.ScrapeReason{failed, ""}, []int{1, 1}},
		"an empty answer can be followed":     {[]script{{response(""), ok, stay}}, []v1alpha1.ScrapeReason{v1alpha1.ScrapeMalformedBody, ""}, []int{2}},
		"an answer without a length and end":  {[]script{{"HTTP/1.1 200 OK\r\n\r\n" + nodeBody}, {ok, stay}}, []v1alpha1.ScrapeReason{"", ""}, []int{1, 1}},
		"an answer that announces other text": {[]script{{response(nodeBody, "Content-Type: text/html"), ok, stay}}, []v1alpha1.ScrapeReason{"", ""}, []int{2}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kubelet := newScriptedKubelet(t, certificate, tt.scripts...)
			cfg := testSettings()
			cfg.TLS = v1alpha1.KubeletTLSInsecureSkipTLSVerify
			s := newTestSource(t, clock.RealClock{}, nil, dialTo(kubelet.Addr().String()), cfg)
			var got []v1alpha1.ScrapeReason
			for range tt.want {
				o := s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1"))
				reason := v1alpha1.ScrapeReason("")
				if o.failure != nil {
					reason = o.failure.reason
					t.Log(o.failure)
				}
				got = append(got, reason)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.requests, kubelet.seen()); diff != "" {
				t.Errorf("requests of each connection (-want +got):\n%s", diff)
			}
		})
	}
}

func chunked(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n%x\r\n%s\r\n0\r\nX: y\r\n\r\n", len(body), body)
}

// TestUnsolicitedBytes checks that bytes that arrive between two scrapes are not the
// answer to the second one.
func TestUnsolicitedBytes(t *testing.T) {
	certificate := newAuthority(t).issue(nil, "192.0.2.1")
	kubelet := newFakeKubelet(t, certificate, func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = buffered.WriteString(response(nodeBody))
		_ = buffered.Flush()
		go func() {
			// The client has read the answer, and not the rest: it has nothing to read it for.
			_, _ = buffered.WriteString(response("node_cpu_usage_seconds_total -1\n"))
			_ = buffered.Flush()
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}()
	})
	cfg := testSettings()
	cfg.TLS = v1alpha1.KubeletTLSInsecureSkipTLSVerify
	s := newTestSource(t, clock.RealClock{}, nil, kubelet.dial, cfg)
	for range 20 {
		checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), "", "")
		idle := s.targets["n1"].connection.idle
		for idle != nil && !hasInput(idle.record.Conn) {
			// Until they have arrived.
		}
	}
	if _, connections := kubelet.seen(); connections != 20 {
		t.Errorf("%d connections for 20 scrapes, want 20", connections)
	}
}

// TestLongIntervalKeepsNoConnection: a kubelet would close it before the next scrape.
func TestLongIntervalKeepsNoConnection(t *testing.T) {
	certificate := newAuthority(t).issue(nil, "192.0.2.1")
	kubelet := newScriptedKubelet(t, certificate, script{response(nodeBody), stay})
	cfg := testSettings()
	cfg.TLS, cfg.Interval = v1alpha1.KubeletTLSInsecureSkipTLSVerify, maxIdle
	s := newTestSource(t, clock.RealClock{}, nil, dialTo(kubelet.Addr().String()), cfg)
	checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), "", "")
	<-kubelet.ended
}

// TestTimeoutInBodyClosesConnection: what comes after the timeout is not the answer to the
// next scrape.
func TestTimeoutInBodyClosesConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		requests := 0
		f := newBubble(t, testSettings(), certificate, func(_ string, w http.ResponseWriter, _ *http.Request) {
			if requests++; requests == 1 {
				_, _ = io.WriteString(w, "node_cpu_usage_seconds_total 1\n")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(testSettings().Timeout + time.Second)
			}
			_, _ = io.WriteString(w, nodeBody)
		})
		f.stop() // no scrapes but these
		checkFailure(t, f.source.scrapeOnce(t.Context(), f.node(0)), v1alpha1.ScrapeTimeout, "")
		if f.source.targets[f.name(0)].connection.idle != nil {
			t.Error("the connection is kept")
		}
		time.Sleep(time.Minute)
		checkFailure(t, f.source.scrapeOnce(t.Context(), f.node(0)), "", "")
		f.source.stop() // closes the connection
	})
}

// TestRemovedNodeClosesConnection checks that no connection outlives its node, whether
// the node is removed between two scrapes or during one.
func TestRemovedNodeClosesConnection(t *testing.T) {
	certificate := newAuthority(t).issue(nil, "192.0.2.1")
	kubelet := newScriptedKubelet(t, certificate, script{response(nodeBody), stay}, script{response(nodeBody), stay}, script{stay})
	cfg := testSettings()
	cfg.TLS = v1alpha1.KubeletTLSInsecureSkipTLSVerify
	s := newTestSource(t, clock.RealClock{}, nil, dialTo(kubelet.Addr().String()), cfg)
	checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), "", "")
	s.DeleteNode("n1")
	if got := <-kubelet.ended; got != 0 {
		t.Errorf("connection %d was closed, want 0", got)
	}
	// It is removed while its scrape ends.
	s.SetNode(testNode("n1", "192.0.2.1"))
	s.mu.Lock()
	target, node, settings := s.targets["n1"], s.nodes["n1"], s.settings
	s.inFlight++
	ctx, cancel := context.WithCancel(t.Context())
	target.cancel = cancel
	s.mu.Unlock()
	o := s.scrape(t.Context(), target, node, settings)
	s.DeleteNode("n1")
	target.connection.keep(mustDial(t, s, target, kubelet))
	s.finish(ctx, target, false, o)
	for range 2 {
		<-kubelet.ended
	}
}

func mustDial(t *testing.T, s *Source, target *target, kubelet *scriptedKubelet) *tlsConn {
	t.Helper()
	end := time.Now().Add(time.Minute)
	a := &attempt{settings: s.settings.kubeletTLS, host: "192.0.2.1", connectBy: end, deadline: end, workspace: &workspace{}}
	conn, err := target.connection.dial(t.Context(), a, kubelet.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestWriteDeadline scrapes a kubelet that completes the handshake and reads nothing.
func TestWriteDeadline(t *testing.T) {
	certificate := newAuthority(t).issue(nil, "192.0.2.1")
	synctest.Test(t, func(t *testing.T) {
		dial := func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			t.Cleanup(func() { _ = server.Close() })
			go func() { _ = tls.Server(server, &tls.Config{Certificates: []tls.Certificate{certificate}}).Handshake() }()
			return client, nil
		}
		cfg := testSettings()
		cfg.TLS = v1alpha1.KubeletTLSInsecureSkipTLSVerify
		s := newTestSource(t, clock.RealClock{}, nil, dial, cfg)
		begin := time.Now()
		checkFailure(t, s.scrapeOnce(t.Context(), testNode("n1", "192.0.2.1")), v1alpha1.ScrapeTimeout, "10s")
		if took := time.Since(begin); took != cfg.Timeout {
			t.Errorf("the scrape took %s, want its timeout", took)
		}
	})
}

// TestUnauthorizedReadsToken checks that the token is read from its file again after a
// kubelet rejected it.
func TestUnauthorizedReadsToken(t *testing.T) {
	ca := newAuthority(t)
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	accepted := "first"
	kubelet := newFakeKubelet(t, ca.issue(nil, "192.0.2.1"), func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+accepted {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, nodeBody)
	})
	s, err := NewSource(Options{
		Store: samplestore.NewStore(clock.RealClock{}, time.Minute), Clock: clock.RealClock{},
		RestConfig: &rest.Config{BearerTokenFile: file}, DefaultCA: ca.pem, Dial: kubelet.dial,
	}, testSettings())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	node := testNode("n1", "192.0.2.1")
	checkFailure(t, s.scrapeOnce(t.Context(), node), "", "")
	accepted = "second"
	write("second")
	// The old token is still cached.
	checkFailure(t, s.scrapeOnce(t.Context(), node), v1alpha1.ScrapeUnauthorized, "")
	checkFailure(t, s.scrapeOnce(t.Context(), node), "", "")
	// The file is gone when the token is read again.
	accepted = "third"
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	checkFailure(t, s.scrapeOnce(t.Context(), node), v1alpha1.ScrapeUnauthorized, "authentication.webhook")
	checkFailure(t, s.scrapeOnce(t.Context(), node), v1alpha1.ScrapeNoToken, "failed to read token file")
}
