// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/watch"
)

// maxFrame bounds one event, or the plain list that an implementation without watch may send in its place.
const maxFrame = 64 << 20

// frame is one JSON value of a watch's answer.
type frame struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`
	Kind   string          `json:"kind"` // set where the value is no event: a list, or a Status

	body json.RawMessage
	// opened: the server accepts the watch. The first frame, unless it is an error.
	opened bool
	err    error // the last frame: the stream ended, io.EOF if cleanly between two frames
}

// read opens a watch and sends its frames; the last holds an error.
func (w *Watcher[T]) read(ctx context.Context, path string, frames chan<- frame) {
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
	if !send(frame{opened: true}) {
		return
	}
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
func (w *Watcher[T]) take(s *stream, f frame) error {
	switch {
	case f.err != nil:
		return f.err
	case f.opened:
		return nil
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
			renewed := w.points.put(object, w.now())
			if s.events++; renewed || s.fresh.IsZero() {
				s.fresh = w.now()
			}
			s.renewed, s.missed = s.renewed || renewed, 0
		}
		return nil
	case f.Type == "" && strings.HasSuffix(f.Kind, "List"):
		if _, err := w.takeList(s.path, f.body); err != nil {
			return err
		}
		return errPlainList
	case f.Type == "" && f.Kind == "Status":
		return statusError(f.body)
	default:
		return fmt.Errorf("the server sent an event of type %.20q, kind %.40q", f.Type, f.Kind)
	}
}
