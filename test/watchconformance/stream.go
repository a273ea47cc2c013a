// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
)

// event is one event of a watch.
type event struct {
	Type string
	// Raw is the object in JSON.
	Raw json.RawMessage
	// Object is empty for an ERROR.
	Object Object
	// At is when it was read.
	At time.Time
}

// endsInitial says that a bookmark ends the initial events.
func (e event) endsInitial() bool {
	return e.Type == string(watch.Bookmark) && e.Object.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// isHeartbeat says that it is a bookmark that ends nothing. API servers take a watch
// without a resourceVersion for one with sendInitialEvents, and end those events.
func (e event) isHeartbeat() bool { return e.Type == string(watch.Bookmark) && !e.endsInitial() }

// openWatch is a watch. Its reader stops where nobody takes its events.
type openWatch struct {
	opened time.Time
	events chan event
	// err is why it ended, io.EOF if cleanly. It is set before events is closed.
	err     error
	cancel  context.CancelFunc
	reading sync.WaitGroup
}

// errPlainList is the answer of servers that do not know of watch.
var errPlainList = errors.New("a plain list answered the watch")

// watch opens a watch with JSON events.
func (c *connection) watch(ctx context.Context, path string, query url.Values, identify func([]byte) (Object, error)) (*openWatch, error) {
	return c.stream(ctx, path, query, acceptJSON, func(body io.Reader) func() (event, error) {
		decoder := json.NewDecoder(body)
		return func() (event, error) {
			var frame struct {
				Type   string
				Kind   string
				Object json.RawMessage
			}
			err := decoder.Decode(&frame)
			if err != nil {
				return event{}, err
			}
			if frame.Type == "" {
				return event{}, fmt.Errorf("an event without a type, of kind %q: %w", frame.Kind, errPlainList)
			}
			e := event{Type: frame.Type, Raw: frame.Object}
			if e.Type == string(watch.Error) {
				return e, nil
			}
			e.Object, err = identify(frame.Object)
			return e, wrongObject(err)
		}
	})
}

// watchProtobuf opens a watch with protobuf events.
func (c *connection) watchProtobuf(ctx context.Context, path string, query url.Values, api API, identify func([]byte) (Object, error)) (*openWatch, error) {
	info, ok := runtime.SerializerInfoForMediaType(api.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		return nil, fmt.Errorf("the codecs of %s know no protobuf", api.Group)
	}
	return c.stream(ctx, path, query, acceptProtobuf, func(body io.Reader) func() (event, error) {
		frames := info.StreamSerializer.Framer.NewFrameReader(io.NopCloser(body))
		decoder := restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), api.Codecs.UniversalDeserializer())
		return func() (event, error) {
			kind, object, err := decoder.Decode()
			if err != nil {
				return event{}, err
			}
			raw, err := json.Marshal(object)
			if err != nil {
				return event{}, err
			}
			o, err := identify(raw)
			return event{Type: string(kind), Raw: raw, Object: o}, wrongObject(err)
		}
	})
}

// stream opens a watch and reads it with what decoder makes of its body.
func (c *connection) stream(ctx context.Context, path string, query url.Values, accept string, decoder func(io.Reader) func() (event, error)) (*openWatch, error) {
	ctx, cancel := context.WithCancel(ctx)
	response, err := c.open(ctx, http.MethodGet, path, query, accept)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &openWatch{opened: time.Now(), events: make(chan event), cancel: cancel}
	next := decoder(response.Body)
	s.reading.Go(func() {
		defer func() { _ = response.Body.Close() }()
		defer close(s.events)
		for {
			e, err := next()
			if err != nil {
				s.err = err
				return
			}
			e.At = time.Now()
			select {
			case s.events <- e:
			case <-ctx.Done():
				s.err = ctx.Err()
				return
			}
		}
	})
	return s, nil
}

// close ends the watch, as a client does that has seen enough.
func (s *openWatch) close() {
	s.cancel()
	s.reading.Wait()
}

// each hands over events until done says so, the watch ends, or ctx does. It
// returns nil in the first case, io.EOF after a clean end, and an error.
func (s *openWatch) each(ctx context.Context, done func(event) bool) error {
	for {
		select {
		case e, open := <-s.events:
			if !open && ctx.Err() != nil {
				return ctx.Err() // which ended the stream, too
			}
			if !open {
				return s.err
			}
			if done(e) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// objectError says that the stream is well, and an object in it is not.
type objectError struct{ error }

func (e objectError) Unwrap() error { return e.error }

func wrongObject(err error) error {
	if err == nil {
		return nil
	}
	return objectError{err}
}

// ended tells of an end that came too early in words.
func ended(s *openWatch, err error) error {
	after := time.Since(s.opened).Round(10 * time.Millisecond)
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the server ended the watch after %s", after)
	case errors.Is(err, errPlainList), errors.As(err, new(objectError)):
		return err
	}
	return fmt.Errorf("the watch broke after %s: %w", after, err)
}
