// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package bodylimit

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

func TestBodies(t *testing.T) {
	const limit = 1000
	zipped := func(n int) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(make([]byte, n))
		_ = w.Close()
		return b.String()
	}
	cases := map[string]struct {
		path, body, encoding string
		code                 int
		want                 int
		err                  bool
	}{
		"as long as allowed":       {path: "/apis", code: 200, body: strings.Repeat("x", limit), want: limit},
		"longer":                   {path: "/apis", code: 200, body: strings.Repeat("x", limit+1), want: limit, err: true},
		"compressed, long":         {path: "/apis", code: 200, body: zipped(limit), encoding: "gzip", want: limit},
		"compressed, longer":       {path: "/apis", code: 200, body: zipped(1 << 20), encoding: "gzip", want: limit, err: true},
		"an error":                 {path: "/apis", code: 503, body: strings.Repeat("x", limit+1), want: limit, err: true},
		"a watch":                  {path: "/apis?watch=true", code: 200, body: strings.Repeat("x", 9*limit), want: 9 * limit},
		"a watch that is rejected": {path: "/apis?watch=true", code: 403, body: strings.Repeat("x", limit+1), want: limit, err: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tc.encoding != "" {
					w.Header().Set("Content-Encoding", tc.encoding)
				}
				w.WriteHeader(tc.code)
				_, _ = io.WriteString(w, tc.body)
			}))
			t.Cleanup(server.Close)
			client, err := rest.HTTPClientFor(Config(&rest.Config{Host: server.URL}, limit))
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Get(server.URL + tc.path) //nolint:noctx // a test server
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if len(got) != tc.want || (err != nil) != tc.err || tc.err && err.Error() != "the response has more than 1000 bytes" {
				t.Errorf("read %d bytes, error %v", len(got), err)
			}
		})
	}
}

// client-go reads all of a response before it looks at it, of errors, too.
func TestRESTClient(t *testing.T) {
	for _, code := range []int{http.StatusOK, http.StatusInternalServerError} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, strings.Repeat("x", 100))
		}))
		t.Cleanup(server.Close)
		config := Config(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()}}, 99)
		client, err := rest.UnversionedRESTClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Get().AbsPath("/apis").Do(t.Context()).Raw(); err == nil || !strings.Contains(err.Error(), "more than 99 bytes") {
			t.Errorf("%d: error %v", code, err)
		}
	}
}
