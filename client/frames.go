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

// maxFrame bounds one event, or the plain list that an implementation without watch may send instead.
const maxFrame = 64 << 20

// frame is one JSON value of a watch response, or one step of its connection.
type frame struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`
	Kind   string          `json:"kind"` // set if the value is no event: a list, or a Status

	body json.RawMessage
	// opened marks the first frame: the server has accepted the watch.
	opened bool
	err    error // set in the last frame: the request failed or the stream ended, with io.EOF if cleanly
}

// readFrames opens a watch and sends its frames until one holds an error.
func (w *Watcher[T]) readFrames(ctx context.Context, path string, frames chan<- frame) {
	send := func(f frame) bool {
		select {
		case frames <- f:
			return true
		case <-ctx.Done():
			return false
		}
	}
	body, err := w.request(path).Param("watch", "true").Param("allowWatchBookmarks", "true").Stream(ctx)
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

// applyFrame applies one frame to the store. An error ends the stream.
func (w *Watcher[T]) applyFrame(s *stream, f frame) error {
	switch {
	case f.err != nil:
		return f.err
	case f.opened:
		return nil
	case f.Type == watch.Bookmark:
		return nil // only a heartbeat: its resourceVersion means nothing, see docs/design.md
	case f.Type == watch.Error:
		return statusError(f.Object)
	case f.Type == watch.Added, f.Type == watch.Modified, f.Type == watch.Deleted:
		object, err := w.api.decodeObject(f.Object)
		if err != nil {
			return fmt.Errorf("reading an event: %w", err)
		}
		if w.api.key(object) == "" {
			return errors.New("reading an event: its object has no name")
		}
		if f.Type == watch.Deleted { // KEP-1013 has no DELETED, but its meaning is clear
			w.store.remove(object)
			return nil
		}
		renewed := w.store.put(object, w.now())
		if s.events++; renewed || s.lastNew.IsZero() {
			s.lastNew = w.now()
		}
		s.renewed, s.missedLists = s.renewed || renewed, 0
		return nil
	case f.Type == "" && strings.HasSuffix(f.Kind, "List"):
		if _, err := w.applyList(s.path, f.body); err != nil {
			return err
		}
		return errPlainList
	case f.Type == "" && f.Kind == "Status":
		return statusError(f.body)
	default:
		return fmt.Errorf("the server sent an event of type %.20q, kind %.40q", f.Type, f.Kind)
	}
}
