// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/http"
	"time"
)

// initialEvents are the parameters of informers: a bookmark ends the initial events.
const initialEvents = "&watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"

// watcher is one watch. It is a streams.Handler.
type watcher struct {
	tally  *tally
	client map[string]received // nil unless ages count
	opened time.Time
	lines  lines
	begun  bool
	synced bool
}

func (w *watcher) Head(status int, _ time.Time) { refuse(w.tally, status) }

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
	w.lines.add(piece, func(line []byte) { w.take(line, at) })
}

func (w *watcher) take(line []byte, at time.Time) {
	switch {
	case bytes.HasPrefix(line, added):
		o, _, ok := nextObject(line)
		if !ok {
			return
		}
		if !w.begun {
			w.begun = true
			w.tally.first.Add(at.Sub(w.opened))
		}
		w.tally.take(w.client, o, at)
	case !w.synced && bytes.HasPrefix(line, bookmark) && bytes.Contains(line, initialEnd):
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
	body   []byte
}

func (p *poller) Head(status int, _ time.Time) { refuse(p.tally, status) }

func (p *poller) Body(piece []byte, _ time.Time) { p.body = append(p.body, piece...) }

func (p *poller) End(err error, at time.Time) {
	p.tally.fail(err)
	p.tally.mu.Lock()
	defer p.tally.mu.Unlock()
	p.tally.lists++
	for o, rest, ok := nextObject(p.body); ok; o, rest, ok = nextObject(rest) {
		p.tally.take(p.client, o, at)
	}
	p.body = p.body[:0]
}
