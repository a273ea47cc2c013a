// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

const (
	// requestTimeout bounds discovery and lists; watches have none.
	requestTimeout = 30 * time.Second
	// maxFrame bounds one event, or the plain list that an implementation without watch may send in its place.
	maxFrame = 64 << 20
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

// negotiate picks the first version that discovery serves, and learns whether it can be watched.
func (w *Watcher[T]) negotiate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var errs []error
	for _, version := range w.api.versions {
		var found metav1.APIResourceList
		err := w.request("/apis/" + w.api.group + "/" + version).Do(ctx).Into(&found)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			// It may be a version whose pods are away: a later one that answers is better than none.
			errs = append(errs, fmt.Errorf("asking which resources %s/%s has: %w", w.api.group, version, err))
			continue
		}
		for _, resource := range found.APIResources {
			if resource.Name == w.api.resource {
				w.agree(version, hasVerb(resource, "watch"))
				return nil
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return fmt.Errorf("the API server serves %s in none of %s %s: is an implementation of it installed?",
		w.api.resource, w.api.group, strings.Join(w.api.versions, ", "))
}

func hasVerb(resource metav1.APIResource, verb string) bool {
	for _, v := range resource.Verbs {
		if v == verb {
			return true
		}
	}
	return false
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
	w.points.replace(objects, w.options.Clock.Now())
	w.setSynced()
	return nil
}

// frame is one JSON value of a watch's answer.
type frame struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`
	Kind   string          `json:"kind"` // set where the value is no event: a list, or a Status

	body json.RawMessage
	err  error // the last frame: the stream ended, io.EOF if cleanly between two frames
}

// stream opens a watch and sends its frames; the last holds an error.
func (w *Watcher[T]) stream(ctx context.Context, path string, frames chan<- frame) {
	send := func(f frame) bool {
		select {
		case frames <- f:
			return true
		case <-ctx.Done():
			return false
		}
	}
	req := w.request(path).Param("watch", "true").Param("allowWatchBookmarks", "true")
	for name, values := range w.api.query {
		req.Param(name, values[0])
	}
	body, err := req.Stream(ctx)
	if err != nil {
		send(frame{err: err})
		return
	}
	defer body.Close() //nolint:errcheck // nothing is written
	limited := &io.LimitedReader{R: body}
	values := json.NewDecoder(limited)
	for {
		limited.N = maxFrame
		var f frame
		if err := values.Decode(&f.body); err != nil {
			if limited.N == 0 {
				err = fmt.Errorf("the server sent a value of more than %d bytes", maxFrame)
			}
			send(frame{err: err})
			return
		}
		if err := json.Unmarshal(f.body, &f); err != nil {
			send(frame{err: fmt.Errorf("the server sent no watch event: %w", err)})
			return
		}
		if !send(f) {
			return
		}
	}
}

// errPlainList ends a watch that was answered by a list, which was taken for what it is.
var errPlainList = errors.New("the server answered the watch with a plain list")

// take takes one frame in; an error ends the stream.
func (w *Watcher[T]) take(path string, f frame) error {
	switch {
	case f.err != nil:
		return f.err
	case f.Type == watch.Bookmark:
		return nil // a heartbeat: its resourceVersion says nothing, see docs/design.md
	case f.Type == watch.Error:
		return statusError(f.Object)
	case f.Type == watch.Added, f.Type == watch.Modified, f.Type == watch.Deleted:
		object, err := w.api.one(f.Object)
		if err != nil {
			return fmt.Errorf("reading an event: %w", err)
		}
		if w.api.key(object) == "" {
			return errors.New("reading an event: its object has no name")
		}
		if f.Type == watch.Deleted { // not in KEP-1013, but unmistakable
			w.points.remove(object)
		} else {
			w.points.put(object, w.options.Clock.Now())
		}
		return nil
	case f.Type == "" && strings.HasSuffix(f.Kind, "List"):
		if err := w.takeList(path, f.body); err != nil {
			return err
		}
		return errPlainList
	case f.Type == "" && f.Kind == "Status":
		return statusError(f.body)
	default:
		return fmt.Errorf("the server sent an event of type %.20q, kind %.40q", f.Type, f.Kind)
	}
}

// statusError turns a metav1.Status into an error, and something else into an error that says so.
func statusError(body []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil {
		return fmt.Errorf("the server sent an error that is no Status: %w", err)
	}
	if status.Code == 0 && status.Message == "" && status.Reason == "" {
		return errors.New("the server sent an error that says nothing")
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// isRefusal tells answers to a watch that asking again soon does not change.
func isRefusal(err error) bool {
	if errors.Is(err, errPlainList) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return true
	}
	return false
}

// startsOver tells the errors after which objects may be missing that a new watch would not tell of.
func startsOver(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) || hasCode(err, http.StatusGatewayTimeout)
}

func hasCode(err error, code int32) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == code
}

// retryAfter is what the server asked for, or 0.
func retryAfter(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(max(seconds, 0)) * time.Second
}
