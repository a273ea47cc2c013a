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
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

// TestAccept holds that every encoding says the same.
func TestAccept(t *testing.T) {
	server := serve(t, listStore(), enableAll)
	paths := []string{"pods", "namespaces/shop/pods", "namespaces/shop/pods/web-0", "nodes", "nodes/node-a", "namespaces/nobody/pods", "pods?limit=2"}
	tests := map[string]struct {
		accept, query, contentType string
	}{
		"YAML":               {accept: "application/yaml", contentType: "application/yaml"},
		"protobuf":           {accept: "application/vnd.kubernetes.protobuf", contentType: "application/vnd.kubernetes.protobuf"},
		"protobuf preferred": {accept: "application/vnd.kubernetes.protobuf,application/json", contentType: "application/vnd.kubernetes.protobuf"},
		"CBOR":               {accept: "application/cbor", contentType: "application/cbor"},
		"pretty JSON":        {accept: "application/json;pretty=1", contentType: "application/json"},
		"pretty by query":    {accept: "application/json", query: "pretty=true", contentType: "application/json"},
		"a foreign first":    {accept: "text/html, application/json;q=0.9", contentType: "application/json"},
		"kubectl's":          {accept: "application/json;as=Table;v=v9;g=meta.k8s.io,application/json", contentType: "application/json"},
		"anything":           {accept: "*/*", contentType: "application/json"},
	}
	for _, version := range GroupVersions() {
		for _, path := range paths {
			url := "/apis/" + version.String() + "/" + path
			want := decodeAny(t, get(t, server, url, "application/json"))
			if got := want.GetObjectKind().GroupVersionKind().GroupVersion(); got != version {
				t.Fatalf("%s answers in version %s", url, got)
			}
			for name, test := range tests {
				t.Run(version.Version+" "+path+" as "+name, func(t *testing.T) {
					query := url
					if test.query != "" {
						separator := "?"
						if bytes.ContainsRune([]byte(url), '?') {
							separator = "&"
						}
						query += separator + test.query
					}
					a := get(t, server, query, test.accept)
					if got := a.header.Get("Content-Type"); got != test.contentType {
						t.Errorf("got Content-Type %q, want %q", got, test.contentType)
					}
					if diff := cmp.Diff(want, decodeAny(t, a), sameQuantity, cmpopts.EquateEmpty()); diff != "" {
						t.Errorf("object (-JSON +%s):\n%s", name, diff)
					}
				})
			}
		}
	}
}

// decodeAny decodes an answer in whatever encoding it has, without conversion.
func decodeAny(t testing.TB, a answer) runtime.Object {
	t.Helper()
	if a.code != http.StatusOK {
		t.Fatalf("got code %d: %s", a.code, a.body)
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), a.header.Get("Content-Type"))
	if !ok {
		t.Fatalf("got Content-Type %q", a.header.Get("Content-Type"))
	}
	obj, gvk, err := info.Serializer.Decode(a.body, nil, nil)
	if err != nil {
		t.Fatalf("decoding %s: %v", a.body, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(*gvk)
	return obj
}

// TestPartialObjectMetadata is what metadata informers and garbage collectors ask for.
func TestPartialObjectMetadata(t *testing.T) {
	server := serve(t, listStore(), enableAll)
	tests := map[string]struct {
		path, as string
		want     []string
	}{
		"pod":   {path: "namespaces/shop/pods/web-0", as: "PartialObjectMetadata", want: []string{"web-0"}},
		"pods":  {path: "namespaces/shop/pods", as: "PartialObjectMetadataList", want: []string{"db-0", "web-0", "web-1"}},
		"nodes": {path: "nodes", as: "PartialObjectMetadataList", want: []string{"node-a", "node-b"}},
		"page":  {path: "nodes?limit=1", as: "PartialObjectMetadataList", want: []string{"node-a"}},
		"none":  {path: "namespaces/nobody/pods", as: "PartialObjectMetadataList"},
	}
	for name, test := range tests {
		for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			t.Run(name+" as "+mediaType, func(t *testing.T) {
				a := get(t, server, "/apis/metrics.k8s.io/v1/"+test.path, mediaType+";as="+test.as+";v=v1;g=meta.k8s.io")
				if a.code != http.StatusOK {
					t.Fatalf("got code %d: %s", a.code, a.body)
				}
				obj, _, err := metainternalscheme.Codecs.UniversalDeserializer().Decode(a.body, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				visit := func(item runtime.Object) error {
					m, err := meta.Accessor(item)
					if err == nil {
						got = append(got, m.GetName())
					}
					return err
				}
				if meta.IsListType(obj) {
					err = meta.EachListItem(obj, visit)
				} else {
					err = visit(obj)
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("names (-want +got):\n%s", diff)
				}
			})
		}
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
		store    *point.Store
		encoding string
	}{
		"large": {store: large, encoding: "gzip"},
		"small": {store: small},
	}
	for name, test := range tests {
		server := serve(t, test.store, enableAll)
		for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
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
