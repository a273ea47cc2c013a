// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"os"
	"time"
)

// refresh is how often a frame may be drawn.
const refresh = 250 * time.Millisecond

// display is where frames go.
type display interface {
	size() (width, height int)
	show([]line) error
}

// live draws the table again when something changed, and each second, since ages do.
type live struct {
	view     *view
	source   *source
	display  display
	capacity *capacity // of nodes; nil for pods
	interval time.Duration
	now      func() time.Time // the cluster's
	local    func() time.Time // this machine's, by which the client counts

	keys    <-chan key
	resized <-chan os.Signal
	ticks   <-chan time.Time // each refresh
}

// run returns nil when ctx ends or the user quits.
func (l *live) run(ctx context.Context) error {
	var drawn time.Time
	dirty := true
	for {
		if dirty || l.local().Sub(drawn) >= time.Second {
			if err := l.draw(); err != nil {
				return err
			}
			dirty, drawn = false, l.local()
		}
		// Changes are taken in as they come and drawn at the next tick; what a user does, at once.
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return nil
			case <-l.ticks:
				waiting = false
			case <-l.resized:
				dirty, waiting = true, false
			case k, open := <-l.keys:
				if !open {
					l.keys = nil // the input ended; signals still end us
					continue
				}
				if k == keyQuit {
					return nil
				}
				l.press(k)
				dirty, waiting = true, false
			case c, open := <-l.source.changes:
				if !open {
					return nil
				}
				l.view.table.apply(c)
				dirty = true
			case found := <-l.capacity.found():
				if found.available != nil { // what was known is better than nothing
					l.view.available = found.available
				}
				l.view.notice.also = found.problem
				dirty = true
			}
		}
	}
}

func (l *live) draw() error {
	v := l.view
	v.now = l.now()
	status := l.source.status()
	n := notice{status: status, interval: l.interval, newest: -1, also: v.notice.also}
	if newest := v.table.newest(); !newest.IsZero() {
		n.newest = max(v.now.Sub(newest), 0)
	}
	n.heard = l.local().Sub(status.LastContact)
	v.notice = n
	if l.capacity != nil {
		for _, r := range v.table.rows {
			if _, known := v.available[r.id.name]; !known {
				l.capacity.want()
				break
			}
		}
	}
	width, height := l.display.size()
	return l.display.show(v.frame(width, height))
}

func (l *live) press(k key) {
	v := l.view
	_, height := l.display.size()
	page := max(height-4, 1)
	rows := len(v.table.rows)
	switch k {
	case keyCPU:
		v.by, v.scroll = byCPU, 0
	case keyMemory:
		v.by, v.scroll = byMemory, 0
	case keyName:
		v.by, v.scroll = byName, 0
	case keyUp:
		v.scroll--
	case keyDown:
		v.scroll++
	case keyPageUp:
		v.scroll -= page
	case keyPageDown:
		v.scroll += page
	case keyHome:
		v.scroll = 0
	case keyEnd:
		v.scroll = rows
	}
	v.scroll = max(min(v.scroll, rows-page), 0)
}
