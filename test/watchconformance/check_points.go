// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// fewEnough is the share of data points that may be out of order, as those of an
// object that comes or goes.
func fewEnough(wrong, all int) bool { return wrong*10 <= all }

// firstAll: all recent data points, as ADDED, at once.
func firstAll(ctx context.Context, t *target) (string, error) {
	r, err := t.recorded(ctx)
	if err != nil {
		return "", err
	}
	if len(r.lists) == 0 {
		return "", unseen("no list succeeded")
	}
	want := t.expected(r.before, r.lists[0])
	all := len(want)
	if len(want) == 0 {
		return "", unseen("there are no %s", t.resource.Name)
	}
	missing := len(want)
	for _, e := range r.events {
		if _, ok := want[e.Object.key()]; !ok || e.Type != "ADDED" {
			continue
		}
		after := e.At.Sub(r.opened)
		if after > t.options.Patience {
			break
		}
		delete(want, e.Object.key())
		if missing = len(want); missing == 0 {
			return fmt.Sprintf("%d %s within %s", all, t.resource.Name, after.Round(time.Millisecond)), nil
		}
	}
	return "", fmt.Errorf("%d of %d were not sent within %s, as %s", missing, all, t.options.Patience, anyKey(want))
}

// thenEachNew: ADDED for each new data point.
func thenEachNew(ctx context.Context, t *target) (string, error) {
	r, err := t.recorded(ctx)
	if err != nil {
		return "", err
	}
	listed, sent := map[string][]string{}, map[string][]string{}
	for _, a := range r.arrivals() {
		listed[a.object.key()] = append(listed[a.object.key()], a.object.identity())
	}
	points := 0
	for _, e := range r.events {
		if key := e.Object.key(); e.Type == "ADDED" && !slices.Contains(sent[key], e.Object.identity()) {
			sent[key] = append(sent[key], e.Object.identity())
			points++
		}
	}
	renewed, missed, example := 0, 0, ""
	all := lasting(r.before, r.before)
	for key, points := range listed {
		// One that is new itself may have a data point on one replica and two on another.
		if _, old := all[key]; !old || len(points) < 2 {
			continue
		}
		renewed++
		if len(sent[key]) < 2 {
			missed, example = missed+1, key
		}
	}
	switch {
	case renewed == 0:
		return "", unseen("lists show no new data point of any object for %s", 2*t.options.PointInterval)
	case !fewEnough(missed, renewed):
		return "", fmt.Errorf("of %d objects with new data points %d were not sent again, as %s", renewed, missed, example)
	}
	return fmt.Sprintf("%d data points of %d objects", points, len(sent)), nil
}

// thenAtOnce: a data point is not sent later than lists show it.
func thenAtOnce(ctx context.Context, t *target) (string, error) {
	r, err := t.recorded(ctx)
	if err != nil {
		return "", err
	}
	arrivals := slices.DeleteFunc(r.arrivals(), func(a arrival) bool { return !a.renewed })
	if len(arrivals) == 0 {
		return "", unseen("lists show no new data point of any object for %s", 2*t.options.PointInterval)
	}
	late, undecided, example, allowed := 0, 0, arrival{}, t.options.Patience+r.spread()
	worst := arrivals[0].delay
	for _, a := range arrivals {
		if a.sent {
			worst = max(worst, a.delay)
		}
		switch {
		case a.delay > allowed:
			late, example = late+1, a
		case !a.sent:
			undecided++
		}
	}
	if !fewEnough(late, len(arrivals)) {
		how := "not at all"
		if example.sent {
			how = "after " + example.delay.Round(time.Millisecond).String()
		}
		return "", fmt.Errorf("%d of %d data points that lists showed were not sent within %s, as %s of %s: %s",
			late, len(arrivals), allowed.Round(10*time.Millisecond), example.object.key(), example.object.Timestamp.Format(time.TimeOnly), how)
	}
	if !fewEnough(undecided, len(arrivals)) {
		return "", unseen("the watch ended before %d of %d data points could be late", undecided, len(arrivals))
	}
	if worst <= 0 {
		return fmt.Sprintf("each of %d before a list showed it", len(arrivals)), nil
	}
	replicas := ""
	if spread := r.spread(); spread > 0 {
		replicas = fmt.Sprintf("; lists differ by up to %s, so there are replicas", spread.Round(time.Millisecond))
	}
	return fmt.Sprintf("%d, at most %s after a list showed it%s", len(arrivals), worst.Round(time.Millisecond), replicas), nil
}

// addedOnly: no other type but BOOKMARK and ERROR, and no data point twice.
func addedOnly(ctx context.Context, t *target) (string, error) {
	r, err := t.recorded(ctx)
	if err != nil {
		return "", err
	}
	added, last, again := 0, map[string]string{}, map[string]bool{}
	for _, e := range r.events {
		switch e.Type {
		case "BOOKMARK":
		case "ERROR":
			return "", fmt.Errorf("an ERROR event: %.300s", e.Raw)
		case "ADDED":
			added++
			if key := e.Object.key(); last[key] == e.Object.identity() {
				// Without a resourceVersion, two data points of one second look the same.
				if e.Object.ResourceVersion == "" && !again[key] {
					again[key] = true
					continue
				}
				return "", fmt.Errorf("a data point of %s was sent twice, resourceVersion %q, of %s", e.Object.key(), e.Object.ResourceVersion, e.Object.Timestamp.Format(time.TimeOnly))
			}
			last[e.Object.key()] = e.Object.identity()
		default:
			return "", fmt.Errorf("an event of type %s, of %s", e.Type, e.Object.key())
		}
	}
	if added == 0 {
		return "", unseen("no event")
	}
	return fmt.Sprintf("%d events", added), nil
}

// resourceVersionSet: informers take an update with the resourceVersion that they
// have for a resync, and drop it.
func resourceVersionSet(ctx context.Context, t *target) (string, error) {
	r, err := t.recorded(ctx)
	if err != nil {
		return "", err
	}
	last, changes := map[string]Object{}, 0
	for _, e := range r.events {
		if e.Type != "ADDED" {
			continue
		}
		o := e.Object
		if o.ResourceVersion == "" {
			return "", fmt.Errorf("%s has no resourceVersion", o.key())
		}
		if before, ok := last[o.key()]; ok {
			if before.ResourceVersion == o.ResourceVersion {
				return "", fmt.Errorf("two data points of %s have the resourceVersion %s", o.key(), o.ResourceVersion)
			}
			changes++
		}
		last[o.key()] = o
	}
	if changes == 0 {
		return "", unseen("no object was sent twice")
	}
	return fmt.Sprintf("%d changes", changes), nil
}

// longestObject is how far samples of one object may be apart.
const longestObject = 5 * time.Minute

// resourceVersionTime: the newest sample's time in decimal milliseconds.
func resourceVersionTime(ctx context.Context, t *target) (string, error) {
	r, err := t.recorded(ctx)
	if err != nil {
		return "", err
	}
	last := map[string]int64{}
	for _, e := range r.events {
		if e.Type != "ADDED" {
			continue
		}
		o := e.Object
		ms, err := strconv.ParseInt(o.ResourceVersion, 10, 64)
		if err != nil {
			return "", fmt.Errorf("the resourceVersion %q of %s is not a number", o.ResourceVersion, o.key())
		}
		// The timestamp is the oldest sample's, in whole seconds.
		if newer := time.UnixMilli(ms).Sub(o.Timestamp); newer < 0 || newer > longestObject {
			return "", fmt.Errorf("the resourceVersion %s of %s is %s, its timestamp %s", o.ResourceVersion, o.key(),
				time.UnixMilli(ms).UTC().Format(time.DateTime), o.Timestamp.UTC().Format(time.DateTime))
		}
		if ms <= last[o.key()] {
			return "", fmt.Errorf("the resourceVersion of %s goes from %d to %d", o.key(), last[o.key()], ms)
		}
		last[o.key()] = ms
	}
	if len(last) == 0 {
		return "", unseen("no event")
	}
	return fmt.Sprintf("of %d objects", len(last)), nil
}
