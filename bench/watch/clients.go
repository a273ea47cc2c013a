// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/http"
	"time"
)

// response counts a response that is not 200, and keeps the first body of each such status. It is a part of a
// streams.Handler.
type response struct {
	tally  *tally
	status int
}

func (r *response) Head(status int, _ time.Time) {
	r.status = status
	if status != http.StatusOK {
		r.tally.mu.Lock()
		defer r.tally.mu.Unlock()
		r.tally.refused[status]++
	}
}

// keepBody keeps the body, or its beginning, if it is the first of its status. The tally's lock must be held.
func (r *response) keepBody(body []byte) {
	if r.status != http.StatusOK && r.tally.bodies[r.status] == "" {
		r.tally.bodies[r.status] = string(body[:min(len(body), 1000)])
	}
}

// watcher is one watch. It is a streams.Handler.
type watcher struct {
	response
	client map[string]received // nil unless ages count
	opened time.Time
	lines  lines
	begun  bool
	synced bool
}

func (w *watcher) Body(piece []byte, at time.Time) {
	w.tally.mu.Lock()
	defer w.tally.mu.Unlock()
	w.keepBody(piece)
	w.lines.add(piece, func(line []byte) { w.take(line, at) })
}

func (w *watcher) take(line []byte, at time.Time) {
	switch {
	case bytes.HasPrefix(line, added):
		if !w.begun {
			w.begun = true
			w.tally.first.Add(at.Sub(w.opened))
		}
		if o, _, ok := nextObject(line); ok {
			w.tally.take(w.client, o, at)
			return
		}
		// A value of another API has no metadata, and no bookmark ends the initial ones.
		w.tally.events++
		w.sync(at)
	case bytes.HasPrefix(line, bookmark) && bytes.Contains(line, initialEnd):
		w.sync(at)
	}
}

func (w *watcher) sync(at time.Time) {
	if !w.synced {
		w.synced = true
		w.tally.synced.Add(at.Sub(w.opened))
	}
}

func (w *watcher) End(err error, _ time.Time) { w.tally.fail(err) }

func (t *tally) fail(err error) {
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.failed = append(t.failed, err)
	}
}

// poller is one client that lists. It handles one response at a time.
type poller struct {
	response
	client map[string]received
	path   string
	body   []byte
}

func (p *poller) Body(piece []byte, _ time.Time) { p.body = append(p.body, piece...) }

func (p *poller) End(err error, at time.Time) {
	p.tally.fail(err)
	p.tally.mu.Lock()
	defer p.tally.mu.Unlock()
	p.tally.lists++
	p.keepBody(p.body)
	o, rest, ok := nextObject(p.body)
	if !ok {
		p.tally.events += bytes.Count(p.body, timestamp) // values of another API
	}
	for ; ok; o, rest, ok = nextObject(rest) {
		p.tally.take(p.client, o, at)
	}
	p.body = p.body[:0]
}
