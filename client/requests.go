// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/internal/bodylimit"
)

// maxBody bounds the body of a response that is no watch: 200,000 pods with twenty labels each take
// 180 MB.
const maxBody = 512 << 20

// newRESTClient returns a client for any group and version, without a timeout, which would cut watches.
func newRESTClient(config *rest.Config) (*rest.RESTClient, error) {
	config = bodylimit.Config(config, maxBody)
	config.Timeout = 0
	// Only JSON tells a list from an event: protobuf's watch is framed by length.
	config.AcceptContentTypes = runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeJSON
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the metrics API: %w", err)
	}
	return c, nil
}

// get returns a request without retries: the Watcher itself retries, while client-go would wait for Retry-After up to
// ten times, on the real clock.
func (w *Watcher[T]) get(path string) *rest.Request {
	return w.rest.Get().AbsPath(path).MaxRetries(0)
}

// request is get with the selectors.
func (w *Watcher[T]) request(path string) *rest.Request {
	req := w.get(path)
	for name, values := range w.api.query {
		req.Param(name, values[0])
	}
	return req
}

// list fetches all objects and replaces those in the store.
func (w *Watcher[T]) list(ctx context.Context) error {
	path := w.api.path(w.version, false)
	body, err := w.fetchList(ctx, path)
	if err != nil {
		return err
	}
	_, err = w.applyList(path, body)
	return err
}

// fetchList returns the body of a list. It is safe for concurrent use.
func (w *Watcher[T]) fetchList(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, w.options.RequestTimeout)
	defer cancel()
	result := w.request(path).Do(ctx)
	body, err := result.Raw()
	if err != nil {
		// Error decodes the server's Status, Raw does not.
		return nil, fmt.Errorf("listing %s: %w", path, result.Error())
	}
	return body, nil
}

// applyList replaces the objects in the store, and schedules the next list. It reports whether a data point is new.
func (w *Watcher[T]) applyList(path string, body []byte) (renewed bool, err error) {
	objects, err := w.api.decodeList(body)
	if err != nil {
		return false, fmt.Errorf("reading the list of %s: %w", path, err)
	}
	for _, object := range objects {
		if w.api.key(object) == "" {
			return false, fmt.Errorf("reading the list of %s: an object has no name", path)
		}
	}
	renewed = w.store.replace(objects, w.now())
	w.listAt = w.now().Add(w.options.jitter(w.options.PollInterval))
	w.setContact(w.now())
	w.setSynced()
	return renewed, nil
}
