// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/websocket"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestRequestMetrics(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	tests := map[string]struct {
		path   string
		answer http.HandlerFunc
		want   map[string]float64
	}{
		"watch":                 {"pods?watch=true", status(200), map[string]float64{"requests_total 200 watch": 1}},
		"watch of a namespace":  {"namespaces/a/pods?watch=1", status(200), map[string]float64{"requests_total 200 watch": 1}},
		"watch by the old path": {"watch/pods", status(200), map[string]float64{"requests_total 200 watch": 1}},
		"list":                  {"pods", status(200), map[string]float64{"requests_total 200 list": 1}},
		"get":                   {"namespaces/a/pods/one", status(404), map[string]float64{"requests_total 404 get": 1}},
		"a body without a code": {"pods", func(w http.ResponseWriter, _ *http.Request) {
			for range 2 {
				if _, err := w.Write([]byte("x")); err != nil {
					t.Error(err)
				}
			}
		}, map[string]float64{"requests_total 200 list": 1}},
		"no answer": {"pods", func(http.ResponseWriter, *http.Request) {}, map[string]float64{"requests_total 200 list": 1}},
		"a provisional answer": {"pods", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusForbidden)
		}, map[string]float64{"requests_total 403 list": 1}},
		"refused: malformed":      {"pods?watch=true", status(400), map[string]float64{"requests_total 400 watch": 1, "watch_errors_total BadRequest": 1}},
		"refused: unknown client": {"pods?watch=true", status(401), map[string]float64{"requests_total 401 watch": 1, "watch_errors_total Unauthorized": 1}},
		"refused: no right":       {"pods?watch=true", status(403), map[string]float64{"requests_total 403 watch": 1, "watch_errors_total Forbidden": 1}},
		"refused: turned off":     {"pods?watch=true", status(405), map[string]float64{"requests_total 405 watch": 1, "watch_errors_total MethodNotAllowed": 1}},
		"refused: YAML":           {"pods?watch=true", status(406), map[string]float64{"requests_total 406 watch": 1, "watch_errors_total NotAcceptable": 1}},
		"refused: initial events": {"pods?watch=true", status(422), map[string]float64{"requests_total 422 watch": 1, "watch_errors_total Invalid": 1}},
		"refused: limit":          {"pods?watch=true", status(429), map[string]float64{"requests_total 429 watch": 1, "watch_errors_total TooManyRequests": 1}},
		"refused: broken":         {"pods?watch=true", status(500), map[string]float64{"requests_total 500 watch": 1, "watch_errors_total InternalError": 1}},
		"refused: not ready":      {"pods?watch=true", status(503), map[string]float64{"requests_total 503 watch": 1, "watch_errors_total ServiceUnavailable": 1}},
		"refused: too slow":       {"pods?watch=true", status(504), map[string]float64{"requests_total 504 watch": 1, "watch_errors_total Timeout": 1}},
		"refused: otherwise":      {"pods?watch=true", status(418), map[string]float64{"requests_total 418 watch": 1, "watch_errors_total Other": 1}},
		"another resource":        {"nodes", status(200), map[string]float64{}},
		"discovery":               {"", status(200), map[string]float64{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
			own := ownAPI(t)
			handler := WithRequestMetrics(test.answer, resolver, []API{own})
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis/"+own.Group+"/v1/"+test.path, nil))
			if diff := cmp.Diff(test.want, series(t, own)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRequestMetricsOfAWatch counts a watch when it begins, and leaves it what it
// needs of its ResponseWriter.
func TestRequestMetricsOfAWatch(t *testing.T) {
	own := ownAPI(t)
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	server := httptest.NewServer(WithRequestMetadata(WithRequestMetrics(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		if err := http.NewResponseController(w).SetWriteDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		if got := UserAgentFrom(r.Context()); got != "jane/1.0" {
			t.Errorf("user agent %q", got)
		}
		<-r.Context().Done()
	}), resolver, []API{own})))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/apis/"+own.Group+"/v1/pods?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User-Agent", "jane/1.0")
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if diff := cmp.Diff(map[string]float64{"requests_total 200 watch": 1}, series(t, own)); diff != "" {
		t.Errorf("while it is open (-want +got):\n%s", diff)
	}
}

// TestRequestMetricsOfAWebSocket counts one when it begins, by the code that it has.
func TestRequestMetricsOfAWebSocket(t *testing.T) {
	own := ownAPI(t)
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	returned := make(chan struct{})
	handler := WithRequestMetrics(websocket.Handler(func(ws *websocket.Conn) {
		_, _ = io.Copy(io.Discard, ws)
	}), resolver, []API{own})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(returned)
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	config, err := websocket.NewConfig("ws"+strings.TrimPrefix(server.URL, "http")+"/apis/"+own.Group+"/v1/pods?watch=true", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := config.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"requests_total 101 watch": 1}
	if diff := cmp.Diff(want, series(t, own)); diff != "" {
		t.Errorf("while it is open (-want +got):\n%s", diff)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	<-returned
	if diff := cmp.Diff(want, series(t, own)); diff != "" {
		t.Errorf("in the end (-want +got):\n%s", diff)
	}
}

// TestNoUserAgent: requests that did not come through WithRequestMetadata have none.
func TestNoUserAgent(t *testing.T) {
	if got := UserAgentFrom(t.Context()); got != "" {
		t.Errorf("%q", got)
	}
}
