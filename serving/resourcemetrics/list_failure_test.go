// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
)

// clientResponse is a ResponseWriter to a client that goes away after some writes.
type clientResponse struct {
	failingWriter
	header http.Header
	codes  []int
}

func (r *clientResponse) Header() http.Header  { return r.header }
func (r *clientResponse) WriteHeader(code int) { r.codes = append(r.codes, code) }

// TestResponse holds what the API server makes of a list and of an error in the middle of it: one
// response, nothing after the error, and a Status for an error before the first byte.
func TestResponse(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	plain := &list{ListInterface: &metav1.ListMeta{}, kind: pods}
	for range 800 {
		plain.Items = append(plain.Items, object{kind: pods, point: randomObject(random, pods)})
	}
	table := &list{ListInterface: plain, Items: plain.Items, kind: pods, table: &tableFormat{version: metav1.SchemeGroupVersion}}
	tests := map[string]struct {
		list      *list
		mediaType string
		want      int
	}{
		"JSON":              {plain, runtime.ContentTypeJSON, http.StatusOK},
		"protobuf":          {plain, runtime.ContentTypeProtobuf, http.StatusOK},
		"Table":             {table, runtime.ContentTypeJSON, http.StatusOK},
		"a Table not in it": {table, runtime.ContentTypeProtobuf, http.StatusInternalServerError},
	}
	for name, test := range tests {
		for _, encoding := range []string{"identity", "gzip"} {
			t.Run(name+" "+encoding, func(t *testing.T) {
				info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), test.mediaType)
				encoder := codecs.EncoderForVersion(info.Serializer, metricsv1.SchemeGroupVersion)
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
				r.Header.Set("Accept-Encoding", encoding)
				respond := func(room int) *clientResponse {
					w := &clientResponse{failingWriter: failingWriter{room: room, err: errors.New("client went away")}, header: http.Header{}}
					responsewriters.SerializeObject(test.mediaType, encoder, w, r, http.StatusOK, test.list)
					return w
				}
				all := respond(math.MaxInt)
				for room := 0; room < all.writes; room += 1 + all.writes/10 { // gzip makes thousands
					got := respond(room)
					if len(got.codes) != 1 || got.codes[0] != test.want || got.writes > room {
						t.Errorf("after %d of %d writes: codes %v, %d more writes", room, all.writes, got.codes, got.writes-room)
					}
				}
			})
		}
	}
}

// sentResponse counts what a handler writes.
type sentResponse struct {
	http.ResponseWriter
	bytes int
	err   error
}

func (r *sentResponse) Write(p []byte) (int, error) {
	r.bytes += len(p)
	n, err := r.ResponseWriter.Write(p)
	if err != nil {
		r.err = err
	}
	return n, err
}

// TestClientGone holds that a list ends when its client does, whatever that is written in.
func TestClientGone(t *testing.T) {
	store := newStore()
	random := rand.New(rand.NewPCG(7, 8))
	for i := range 300 { // 1 MB of gzip
		usages := manyUsages(100)
		for j := range usages {
			usages[j].CPU, usages[j].Memory, usages[j].Swap, usages[j].HasSwap = random.Uint64()>>1, random.Uint64()>>1, random.Uint64()>>1, true
		}
		put(store.Pods, "shop", fmt.Sprintf("web-%d", i), nil, sample(0, usages...))
	}
	sent := make(chan *sentResponse, 1)
	handler := serve(t, store, enableAll, withUser, func(c *genericapiserver.Config) {
		c.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
			// The filters do not wait for a handler after the client is gone.
			return genericapiserver.DefaultBuildHandlerChain(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				response := &sentResponse{ResponseWriter: w}
				defer func() { sent <- response }()
				handler.ServeHTTP(response, r)
			}), c)
		}
	}).Config.Handler
	sizes := map[string]int{}
	for protocol, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		for name, header := range map[string]http.Header{
			"JSON":     {"Accept-Encoding": {"identity"}},
			"pretty":   {"Accept": {"application/json;pretty=1"}, "Accept-Encoding": {"identity"}},
			"protobuf": {"Accept": {runtime.ContentTypeProtobuf}, "Accept-Encoding": {"identity"}},
			"gzip":     {"Accept-Encoding": {"gzip"}},
			"Table":    {"Accept": {kubectlTable}, "Accept-Encoding": {"identity"}},
		} {
			t.Run(protocol+" "+name, func(t *testing.T) {
				server := httptest.NewUnstartedServer(handler)
				server.EnableHTTP2 = http2
				// Much less than a list is buffered.
				const buffered = 64 << 10
				server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
					if err := c.(*tls.Conn).NetConn().(*net.TCPConn).SetWriteBuffer(buffered); err != nil {
						t.Error(err)
					}
					return ctx
				}
				server.StartTLS()
				defer server.Close()
				server.Client().Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: buffered}
				read := func(limit int64) *sentResponse {
					r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/apis/metrics.k8s.io/v1/pods?includeObject=Object", nil)
					if err != nil {
						t.Fatal(err)
					}
					r.Header = header
					response, err := server.Client().Do(r)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.CopyN(io.Discard, response.Body, limit); err != nil && err != io.EOF {
						t.Error(err)
					}
					if err := response.Body.Close(); err != nil {
						t.Error(err)
					}
					return <-sent
				}
				if sizes[name] == 0 {
					sizes[name] = read(math.MaxInt64).bytes
				}
				if got := read(1000); got.err == nil || got.bytes >= sizes[name] {
					t.Errorf("wrote %d of %d bytes, and error %v, to a client that left after 1000", got.bytes, sizes[name], got.err)
				}

			})
		}
	}
}
