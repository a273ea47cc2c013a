// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/http"
	"time"
)

// watcher is one watch. It is a streams.Handler.
type watcher struct {
	tally  *tally
	client map[string]received // nil unless ages count
	opened time.Time
	lines  lines
	status int
	begun  bool
	synced bool
}

func (w *watcher) Head(status int, _ time.Time) {
	w.status = status
	refuse(w.tally, status)
}

func refuse(t *tally, status int) {
	if status != http.StatusOK {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.refused[status]++
	}
}

func (w *watcher) Body(piece []byte, at time.Time) {
	w.tally.mu.Lock()
	defer w.tally.mu.Unlock()
	w.tally.explain(w.status, piece)
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
	tally  *tally
	client map[string]received
	path   string
	status int
	body   []byte
}

func (p *poller) Head(status int, _ time.Time) {
	p.status = status
	refuse(p.tally, status)
}

func (p *poller) Body(piece []byte, _ time.Time) { p.body = append(p.body, piece...) }

func (p *poller) End(err error, at time.Time) {
	p.tally.fail(err)
	p.tally.mu.Lock()
	defer p.tally.mu.Unlock()
	p.tally.lists++
	p.tally.explain(p.status, p.body)
	o, rest, ok := nextObject(p.body)
	if !ok {
		p.tally.events += bytes.Count(p.body, timestamp) // values of another API
	}
	for ; ok; o, rest, ok = nextObject(rest) {
		p.tally.take(p.client, o, at)
	}
	p.body = p.body[:0]
}
