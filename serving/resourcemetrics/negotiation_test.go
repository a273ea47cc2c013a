// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// TestAccept holds that an Accept header means what it means elsewhere in Kubernetes; the
// encodings themselves are TestRecordedAnswers'.
func TestAccept(t *testing.T) {
	server := serve(t, listStore(), enableAll)
	const path = "/apis/metrics.k8s.io/v1/pods"
	for name, test := range map[string]struct {
		accept, query string
		// like is the header that is answered alike.
		like string
	}{
		"protobuf preferred": {accept: "application/vnd.kubernetes.protobuf,application/json", like: "application/vnd.kubernetes.protobuf"},
		"pretty by query":    {accept: "application/json", query: "?pretty=true", like: "application/json;pretty=1"},
		"a foreign first":    {accept: "text/html, application/json;q=0.9", like: "application/json"},
		"a foreign Table":    {accept: "application/json;as=Table;v=v9;g=meta.k8s.io,application/json", like: "application/json"},
		"anything":           {accept: "*/*", like: "application/json"},
	} {
		t.Run(name, func(t *testing.T) {
			want, got := get(t, server, path, test.like), get(t, server, path+test.query, test.accept)
			if got.code != http.StatusOK || got.header.Get("Content-Type") != want.header.Get("Content-Type") {
				t.Errorf("got code %d and Content-Type %q", got.code, got.header.Get("Content-Type"))
			}
			if diff := cmp.Diff(string(want.body), string(got.body)); diff != "" {
				t.Errorf("(-%s +%s):\n%s", test.like, test.accept, diff)
			}
		})
	}
}

// TestGzip holds that large lists are compressed for those who ask, and small
// ones are not: the API server goes by the size of the first write.
func TestGzip(t *testing.T) {
	large, small := newStore(), newStore()
	for i := range 1000 {
		put(large.Pods, "shop", fmt.Sprintf("web-%d", i), nil, sample(0, manyUsages(3)...))
	}
	put(small.Pods, "shop", "web-0", nil, sample(0, manyUsages(3)...))
	tests := map[string]struct {
		store    *samplestore.Store
		encoding string
	}{
		"large": {store: large, encoding: "gzip"},
		"small": {store: small},
	}
	for name, test := range tests {
		server := serve(t, test.store, enableAll)
		for _, mediaType := range []string{runtime.ContentTypeJSON, "application/json;pretty=1", runtime.ContentTypeProtobuf, kubectlTable} {
			t.Run(name+" as "+mediaType, func(t *testing.T) {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/apis/metrics.k8s.io/v1/pods", nil)
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Accept", mediaType)
				request.Header.Set("Accept-Encoding", "gzip")
				response, err := server.Client().Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = response.Body.Close() }()
				if got := response.Header.Get("Content-Encoding"); got != test.encoding {
					t.Errorf("got Content-Encoding %q, want %q", got, test.encoding)
				}
				body := io.Reader(response.Body)
				if response.Header.Get("Content-Encoding") == "gzip" {
					if body, err = gzip.NewReader(response.Body); err != nil {
						t.Fatal(err)
					}
				}
				got, err := io.ReadAll(body)
				if err != nil {
					t.Fatal(err)
				}
				if want := get(t, server, "/apis/metrics.k8s.io/v1/pods", mediaType).body; !bytes.Equal(got, want) {
					t.Errorf("compressed and plain answer differ in %d and %d bytes", len(got), len(want))
				}
			})
		}
	}
}
