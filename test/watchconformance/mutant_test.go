// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// mutant is the reference with one thing wrong. Each of its parts may be nil.
type mutant struct {
	// refuse answers a request in the reference's place, if it returns true.
	refuse func(w http.ResponseWriter, r *http.Request) bool
	// ask changes a request.
	ask func(r *http.Request, query url.Values)
	// answer changes the body of what is no stream.
	answer func(r *http.Request, body []byte) []byte
	// stream returns what changes the events of one watch in JSON: it sends what it
	// makes of each.
	stream func(r *http.Request) func(e mutantEvent, send func(mutantEvent))
	// inTurn writes each event to one client after the other.
	inTurn bool
	// patience is that of the suite's options, for what depends on time.
	patience time.Duration
	// open is how many watches are.
	open atomic.Int64
}

// mutantEvent is an event of which any part can be changed.
type mutantEvent struct {
	Type   string         `json:"type"`
	Object map[string]any `json:"object"`
}

func (e mutantEvent) metadata() map[string]any {
	m, _ := e.Object["metadata"].(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	return m
}

// key is NAMESPACE/NAME of the object, or of what a value describes.
func (e mutantEvent) key() string {
	of, isValue := e.Object["describedObject"].(map[string]any)
	if !isValue {
		of = e.metadata()
	}
	namespace, _ := of["namespace"].(string)
	name, _ := of["name"].(string)
	return namespace + "/" + name
}

func (e mutantEvent) endsInitial() bool { return e.metadata()["annotations"] != nil }

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

// serve puts the mutant in front of the reference.
func (m *mutant) serve(t *testing.T, reference *reference) *rest.Config {
	t.Helper()
	target, err := url.Parse(reference.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	quiet := log.New(io.Discard, "", 0)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			// What is to be changed must not be compressed.
			r.Out.Header.Set("Accept-Encoding", "identity")
			if m.ask != nil {
				query := r.Out.URL.Query()
				m.ask(r.Out, query)
				r.Out.URL.RawQuery = query.Encode()
			}
		},
		Transport:      reference.server.Client().Transport,
		FlushInterval:  -1,
		ModifyResponse: m.modify,
		ErrorLog:       quiet,
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isWatch(r) {
			m.open.Add(1)
			defer m.open.Add(-1)
		}
		if m.refuse == nil || !m.refuse(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	server.Config.ErrorLog = quiet
	if m.inTurn {
		turns := newTurns(server.Config.Handler)
		server.Config.Handler, server.Config.ConnContext = turns, turns.narrow
	}
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &rest.Config{Host: server.URL}
}

func (m *mutant) modify(response *http.Response) error {
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		return nil
	}
	r := response.Request
	switch {
	case isWatch(r) && m.stream != nil:
		response.Body = changed(response.Body, m.stream(r))
	case !isWatch(r) && m.answer != nil:
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		body = m.answer(r, body)
		response.Body = io.NopCloser(bytes.NewReader(body))
		response.ContentLength = int64(len(body))
		response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	return nil
}

// changed is a stream of events after a change.
func changed(body io.ReadCloser, change func(mutantEvent, func(mutantEvent))) io.ReadCloser {
	out, in := io.Pipe()
	go func() {
		defer func() { _ = body.Close() }()
		decoder, encoder := json.NewDecoder(body), json.NewEncoder(in)
		for {
			var e mutantEvent
			if err := decoder.Decode(&e); err != nil {
				_ = in.CloseWithError(err)
				return
			}
			var failed error
			change(e, func(e mutantEvent) {
				if err := encoder.Encode(e); err != nil {
					failed = err
				}
			})
			if failed != nil {
				return // the client has gone
			}
		}
	}()
	return out
}

// each makes a stream's change of a function that keeps nothing between events.
func each(change func(e mutantEvent, send func(mutantEvent))) func(*http.Request) func(mutantEvent, func(mutantEvent)) {
	return func(*http.Request) func(mutantEvent, func(mutantEvent)) { return change }
}

// status refuses a request with a Status.
func status(w http.ResponseWriter, code int, reason string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "mutant"})
	return true
}
