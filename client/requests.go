// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// newRESTClient makes a client for any group and version. Retries are the Watcher's business (see request), and a
// timeout of the whole client would cut watches.
func newRESTClient(config *rest.Config) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0
	// JSON, since only there a list can be told from an event: protobuf's watch is framed by length.
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

// request leaves retries to the Watcher: client-go's own wait up to ten times for Retry-After, on a clock of their own.
func (w *Watcher[T]) request(path string) *rest.Request {
	return w.rest.Get().AbsPath(path).MaxRetries(0)
}

// list takes all objects in at once.
func (w *Watcher[T]) list(ctx context.Context) error {
	path := w.api.path(w.version, false)
	body, err := w.fetch(ctx, path)
	if err != nil {
		return err
	}
	_, err = w.takeList(path, body)
	return err
}

// fetch asks for a list. It may be called from any goroutine.
func (w *Watcher[T]) fetch(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, w.options.RequestTimeout)
	defer cancel()
	req := w.request(path)
	for name, values := range w.api.query {
		req.Param(name, values[0])
	}
	result := req.Do(ctx)
	// Error has the server's Status, where Raw has less.
	if err := result.Error(); err != nil {
		return nil, fmt.Errorf("listing %s: %w", path, err)
	}
	body, err := result.Raw()
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", path, err)
	}
	return body, nil
}

// takeList reports whether a data point of the list is new. The next list is due a PollInterval later.
func (w *Watcher[T]) takeList(path string, body []byte) (renewed bool, err error) {
	objects, err := w.api.list(body)
	if err != nil {
		return false, fmt.Errorf("reading the list of %s: %w", path, err)
	}
	for _, object := range objects {
		if w.api.key(object) == "" {
			return false, fmt.Errorf("reading the list of %s: an object has no name", path)
		}
	}
	renewed = w.points.replace(objects, w.now())
	w.listAt = w.now().Add(w.options.jitter(w.options.PollInterval))
	w.setContact(w.now())
	w.setSynced()
	return renewed, nil
}
