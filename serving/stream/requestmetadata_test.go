// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestInitialEventsUnasked tells what a client asked for from what the API server
// makes of it.
func TestInitialEventsUnasked(t *testing.T) {
	tests := map[string]struct {
		query   string
		wrapped bool
		want    bool
	}{
		"not in the query":         {query: "watch=true&allowWatchBookmarks=true", wrapped: true, want: true},
		"in the query":             {query: "watch=true&sendInitialEvents=true", wrapped: true},
		"without the wrapper":      {query: "watch=true"},
		"refused by the client":    {query: "watch=true&sendInitialEvents=false", wrapped: true},
		"in other words":           {query: "watch=true&send%49nitialEvents=true", wrapped: true},
		"in a selector":            {query: "watch=true&labelSelector=a%3DsendInitialEvents", wrapped: true, want: true},
		"beside what is malformed": {query: "watch=true&%zz=1&sendInitialEvents=true", wrapped: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := false
			var handler http.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = InitialEventsUnasked(r.Context()) })
			if test.wrapped {
				handler = WithRequestMetadata(handler)
			}
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/pods?"+test.query, nil))
			if got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// countingResolver counts the requests that it resolves.
type countingResolver struct {
	calls int
	err   error
}

// NewRequestInfo implements request.RequestInfoResolver.
func (c *countingResolver) NewRequestInfo(r *http.Request) (*request.RequestInfo, error) {
	c.calls++
	return &request.RequestInfo{Path: r.URL.Path}, c.err
}

func TestResolveOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		wrapped bool
		err     error
		want    int
	}{
		"with metadata":           {wrapped: true, want: 2},
		"an error, with metadata": {wrapped: true, err: errors.New("no path"), want: 2},
		"without metadata":        {want: 4},
	} {
		t.Run(name, func(t *testing.T) {
			counting := &countingResolver{err: tc.err}
			resolver := ResolveOnce(counting)
			var handler http.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for range 2 {
					// As the API server's filters do, which copy the request.
					info, err := resolver.NewRequestInfo(r.Clone(r.Context()))
					if !errors.Is(err, tc.err) || info == nil || info.Path != r.URL.Path {
						t.Errorf("%s: %v, %v", r.URL.Path, info, err)
					}
				}
			})
			if tc.wrapped {
				handler = WithRequestMetadata(handler)
			}
			for _, path := range []string{"/a", "/b"} {
				handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
			}
			if counting.calls != tc.want {
				t.Errorf("%d calls for two requests, want %d", counting.calls, tc.want)
			}
		})
	}
}
