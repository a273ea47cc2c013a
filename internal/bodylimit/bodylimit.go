// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bodylimit bounds the bodies of HTTP responses. kube-apiserver passes on what an
// aggregated API answers, whatever its length, and client-go reads all of it, of errors, too.
package bodylimit

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// Config returns a copy of config whose clients read at most limit bytes of each response; see
// Transport.
func Config(config *rest.Config, limit int64) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return Transport(next, limit) })
	return config
}

// Transport returns a RoundTripper with whose responses reading more than limit bytes, counted after
// decompression, is an error. The body of a watch (status 200) has no limit: its reader bounds each
// event.
func Transport(next http.RoundTripper, limit int64) http.RoundTripper {
	return &transport{next, limit}
}

type transport struct {
	next  http.RoundTripper
	limit int64
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil || response.StatusCode == http.StatusOK && r.URL.Query().Get("watch") == "true" {
		return response, err
	}
	response.Body = body{http.MaxBytesReader(nil, response.Body, t.limit)}
	return response, nil
}

// WrappedRoundTripper implements net.RoundTripperWrapper of apimachinery.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// body has an error that fits a response.
type body struct{ io.ReadCloser }

// Read implements io.Reader.
func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		err = fmt.Errorf("the response has more than %d bytes", tooLong.Limit)
	}
	return n, err
}
