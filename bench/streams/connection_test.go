// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// collector collects one response.
type collector struct {
	status int
	body   strings.Builder
	pieces chan string
	ended  chan error
}

func newCollector() *collector {
	return &collector{pieces: make(chan string, 16), ended: make(chan error, 1)}
}

func (h *collector) Head(status int, _ time.Time) { h.status = status }
func (h *collector) Body(piece []byte, _ time.Time) {
	h.body.Write(piece)
	h.pieces <- string(piece)
}
func (h *collector) End(err error, _ time.Time) { h.ended <- err }

func serve(t *testing.T, handler http.HandlerFunc) *Connection {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c, err := Dial(t.Context(), server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestManyAnswers(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/none" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, "%s for %s: %s", r.URL.RequestURI(), r.Header.Get("X-Remote-User"), strings.Repeat("x", 100_000))
	})
	all := make([]*collector, 50)
	for i := range all {
		all[i] = newCollector()
		if err := c.Get(fmt.Sprintf("/some?n=%d", i), []string{"x-remote-user", "me"}, all[i]); err != nil {
			t.Fatal(err)
		}
	}
	none := newCollector()
	if err := c.Get("/none", nil, none); err != nil {
		t.Fatal(err)
	}
	for i, h := range all {
		if err := <-h.ended; err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("/some?n=%d for me: %s", i, strings.Repeat("x", 100_000))
		if h.status != http.StatusOK || h.body.String() != want {
			t.Errorf("answer %d: status %d, %d bytes", i, h.status, h.body.Len())
		}
	}
	if err := <-none.ended; err != nil || none.status != http.StatusNotFound {
		t.Errorf("status %d, %v", none.status, err)
	}
	if c.Open() != 0 || c.Received() < 50*100_000 || c.Sent() == 0 {
		t.Errorf("%d open, %d bytes received, %d sent", c.Open(), c.Received(), c.Sent())
	}
}

func TestStreamsAndItsEnd(t *testing.T) {
	goOn := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, "first")
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/broken" {
			panic(http.ErrAbortHandler)
		}
		<-goOn
		_, _ = fmt.Fprint(w, "second")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	broken, lasting := newCollector(), newCollector()
	for path, h := range map[string]*collector{"/broken": broken, "/lasting": lasting} {
		if err := c.Get(path, nil, h); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-lasting.pieces; got != "first" {
		t.Errorf("got %q", got)
	}
	if err := <-broken.ended; err == nil {
		t.Error("an answer that was broken off ended well")
	}
	close(goOn)
	if got := <-lasting.pieces; got != "second" {
		t.Errorf("got %q", got)
	}
	c.Close()
	if err := <-lasting.ended; err == nil {
		t.Error("the connection was closed, and the request ended well")
	}
	if err := c.Get("/", nil, newCollector()); err == nil {
		t.Error("a closed connection takes requests")
	}
}
