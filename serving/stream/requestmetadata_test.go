// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"net/http"
	"net/http/httptest"
	"testing"
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
