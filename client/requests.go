// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// requestTimeout bounds discovery and lists; watches have none.
const requestTimeout = 30 * time.Second

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
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	path := w.api.path(w.version, false)
	req := w.request(path)
	for name, values := range w.api.query {
		req.Param(name, values[0])
	}
	result := req.Do(ctx)
	if err := result.Error(); err != nil {
		return fmt.Errorf("listing %s: %w", path, err)
	}
	body, err := result.Raw()
	if err != nil {
		return fmt.Errorf("listing %s: %w", path, err)
	}
	return w.takeList(path, body)
}

func (w *Watcher[T]) takeList(path string, body []byte) error {
	objects, err := w.api.list(body)
	if err != nil {
		return fmt.Errorf("reading the list of %s: %w", path, err)
	}
	for _, object := range objects {
		if w.api.key(object) == "" {
			return fmt.Errorf("reading the list of %s: an object has no name", path)
		}
	}
	if w.points.replace(objects, w.now()) {
		w.dataAwaited = false
	}
	w.setContact(w.now())
	w.setSynced()
	return nil
}
