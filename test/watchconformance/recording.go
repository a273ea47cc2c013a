// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"sync"
	"time"
)

// recording is one watch of a resource beside lists of the same, for as long as
// new data points take to come.
type recording struct {
	opened time.Time
	// before was listed before the watch was opened, lists after it.
	before *listing
	lists  []*listing
	events []event
	// ended is when the recording did.
	ended time.Time
}

// record watches and lists for two of the intervals in which new data points
// come, and then watches on until all that the lists had was sent, or was late.
func (t *target) record(ctx context.Context) (*recording, error) {
	interval, patience := t.options.PointInterval, t.options.Patience
	ctx, cancel := context.WithTimeout(ctx, 3*interval+3*patience)
	defer cancel()
	before, err := t.list(ctx, nil)
	if err != nil {
		return nil, err
	}
	s, err := t.watch(ctx, params("allowWatchBookmarks", "true"))
	if err != nil {
		return nil, err
	}
	defer s.close()
	r := &recording{opened: s.opened, before: before}
	lists, listing := make(chan *listing), sync.WaitGroup{}
	listing.Go(func() { defer close(lists); t.poll(ctx, 2*interval, lists) })
	defer listing.Wait()
	defer cancel()
	look := time.NewTicker(t.options.moment() / 20)
	defer look.Stop()
	for {
		select {
		case l, open := <-lists:
			if !open {
				lists = nil
				continue
			}
			r.lists = append(r.lists, l)
		case e, open := <-s.events:
			if !open && ctx.Err() == nil {
				return nil, ended(s, s.err)
			}
			if !open {
				t.noteEvents(r)
				return r, nil
			}
			r.events = append(r.events, e)
		case <-look.C:
			if lists == nil && (r.settled() || r.waited() > patience+r.spread()) {
				t.noteEvents(r)
				return r, nil
			}
		case <-ctx.Done():
			t.noteEvents(r)
			return r, nil
		}
	}
}

func (t *target) noteEvents(r *recording) {
	r.ended = time.Now()
	var objects []Object
	for _, e := range r.events {
		if e.Type == "ADDED" {
			objects = append(objects, e.Object)
		}
	}
	t.ledger.note(t.resource.Name, objects...)
}

// waited is how long ago the last list was.
func (r *recording) waited() time.Duration {
	if len(r.lists) == 0 {
		return 0
	}
	return time.Since(r.lists[len(r.lists)-1].ended)
}

// poll lists again and again for a time. It is away ten times as long as it asks,
// since lists of a great cluster cost the server something, but sees each interval. It
// does not end before it has a few, however long they take.
func (t *target) poll(ctx context.Context, duration time.Duration, to chan<- *listing) {
	pause := min(max(t.options.PointInterval/20, 20*time.Millisecond), time.Second)
	next := time.NewTimer(pause)
	defer next.Stop()
	began := time.Now()
	for lists := 0; lists < 4 || time.Since(began) < duration; {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		l, err := t.list(ctx, nil)
		if err != nil {
			next.Reset(pause) // what else it says of the server, other checks say
			continue
		}
		next.Reset(max(pause, min(10*l.ended.Sub(l.began), t.options.PointInterval/2)))
		select {
		case to <- l:
			lists++
		case <-ctx.Done():
			return
		}
	}
}

// arrival is what became of a data point that a list had.
type arrival struct {
	object Object
	// renewed says that a list had another one of the object before.
	renewed bool
	// delay from the end of the first list with it to its event, negative for an
	// event that came first, or to the end of the recording.
	delay time.Duration
	sent  bool
}

// arrivals of all data points that are listed, but for objects that are gone.
func (r *recording) arrivals() []arrival {
	if len(r.lists) == 0 {
		return nil
	}
	events := map[string][]event{}
	for _, e := range r.events {
		if e.Type == "ADDED" {
			events[e.Object.key()] = append(events[e.Object.key()], e)
		}
	}
	there := map[string]bool{}
	for _, o := range r.lists[len(r.lists)-1].objects {
		there[o.key()] = true
	}
	seen, listed := map[[2]string]bool{}, map[string]bool{}
	var all []arrival
	for _, l := range r.lists {
		for _, o := range l.objects {
			id := [2]string{o.key(), o.identity()}
			if seen[id] || !there[o.key()] {
				continue
			}
			seen[id] = true
			a := arrival{object: o, renewed: listed[o.key()], delay: r.ended.Sub(l.ended)}
			listed[o.key()] = true
			for _, e := range events[o.key()] {
				// A newer one supersedes it.
				if e.Object.identity() == o.identity() || e.Object.Timestamp.After(o.Timestamp) {
					a.sent, a.delay = true, e.At.Sub(l.ended)
					break
				}
			}
			all = append(all, a)
		}
	}
	return all
}

// spread is how much older than another one a list may be: replicas have new data
// points at different moments, and each request may be another's.
func (r *recording) spread() time.Duration {
	type sighting struct {
		of    time.Time // the data point
		first time.Time // when a list had it
	}
	newest := map[string]sighting{}
	var spread time.Duration
	for _, l := range r.lists {
		for _, o := range l.objects {
			switch seen, ok := newest[o.key()]; {
			case !ok || o.Timestamp.After(seen.of):
				newest[o.key()] = sighting{o.Timestamp, l.ended}
			case o.Timestamp.Before(seen.of):
				spread = max(spread, l.ended.Sub(seen.first))
			}
		}
	}
	return spread
}

// identity tells data points of one object apart.
func (o Object) identity() string { return o.ResourceVersion + " " + o.Timestamp.UTC().String() }

func (r *recording) settled() bool {
	for _, a := range r.arrivals() {
		if !a.sent {
			return false
		}
	}
	return true
}
