// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"time"
)

// refresh is the minimum time between two frames.
const refresh = 250 * time.Millisecond

// live redraws the table after changes, and each second, since ages change.
type live struct {
	view     *view
	source   *source
	screen   *screen
	nodes    *nodeLister
	interval time.Duration
	now      func() time.Time // the cluster's; the client's status has this machine's
}

// run returns nil when ctx ends or the user quits.
func (l *live) run(ctx context.Context) error {
	resized, stop := resizes()
	defer stop()
	ticker := time.NewTicker(refresh)
	defer ticker.Stop()
	keys := l.screen.keys
	var drawn time.Time
	dirty := true
	for {
		if dirty || time.Since(drawn) >= time.Second {
			if err := l.draw(); err != nil {
				return err
			}
			dirty, drawn = false, time.Now()
		}
		// Changes are drawn at the next tick, keys and new sizes at once.
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				waiting = false
			case <-resized:
				dirty, waiting = true, false
			case k, open := <-keys:
				if !open {
					keys = nil // the input ended; signals still end us
					continue
				}
				if k == keyQuit {
					return nil
				}
				l.handleKey(k)
				dirty, waiting = true, false
			case c, open := <-l.source.changes:
				if !open {
					return nil
				}
				l.view.table.apply(c)
				dirty = true
			case found := <-l.nodes.out:
				if found.available != nil { // else keep the former ones
					l.view.available = found.available
				}
				l.view.notice.problem = found.problem
				dirty = true
			}
		}
	}
}

func (l *live) draw() error {
	v := l.view
	v.now = l.now()
	status := l.source.status()
	v.notice = notice{status: status, interval: l.interval, newest: -1, lastContact: time.Since(status.LastContact), problem: v.notice.problem}
	if newest := v.table.newest(); !newest.IsZero() {
		v.notice.newest = max(v.now.Sub(newest), 0)
	}
	for _, r := range v.table.rows {
		if _, known := v.available[r.id.name]; v.percentages && !known {
			l.nodes.request()
		}
	}
	width, height := l.screen.size()
	return l.screen.show(v.frame(width, height))
}

func (l *live) handleKey(k key) {
	v := l.view
	_, height := l.screen.size()
	page := max(height-4, 1)
	rows := len(v.table.rows)
	if by, ok := map[key]order{keyCPU: byCPU, keyMemory: byMemory, keyName: byName}[k]; ok {
		v.by, v.scroll = by, 0
	}
	v.scroll += map[key]int{keyUp: -1, keyDown: 1, keyPageUp: -page, keyPageDown: page, keyHome: -v.scroll, keyEnd: rows}[k]
	v.scroll = max(min(v.scroll, rows-page), 0)
}
