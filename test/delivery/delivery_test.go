// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// points of one object, each the newest for 15 s, under every step-th number.
func points(step int) []*Point {
	var all []*Point
	for i := 0; i < 20; i += step {
		all = append(all, &Point{
			Object: "shop/web-0", Version: strconv.Itoa(i), Cells: "web-0 " + strconv.Itoa(i/2),
			First: at(15*i - 15), Last: at(15 * i), Earliest: at(15*i - 16), Latest: at(15*i + 1),
		})
	}
	return all
}

// delivered is all that a watch from the second 0 to 300 delivers of points(step).
func delivered(step int) []Sighting {
	var all []Sighting
	for i := 0; i < 20; i += step {
		all = append(all, Sighting{ID: "shop/web-0 " + strconv.Itoa(i), At: at(max(0, 15*i-15))})
	}
	return all
}

func TestJudge(t *testing.T) {
	one := func(object, version string, first, last int) *Point {
		_, name, _ := strings.Cut(object, "/")
		return &Point{Object: object, Version: version, Cells: name + " " + version + "m",
			Earliest: at(first), First: at(first), Last: at(last), Latest: at(last)}
	}
	pod := func(version string, first, last int) *Point { return one("shop/web-0", version, first, last) }
	node := func(version string, first, last int) *Point { return one("node-1", version, first, last) }
	// The last point of gone may come when no poll has seen it.
	gone := map[string][]*Point{"a": {pod("1", 0, 15), pod("2", 15, 30)}}
	goes := func(last ...Sighting) []Sighting {
		return append([]Sighting{{"shop/web-0 1", at(0)}, {"shop/web-0 2", at(15)}}, last...)
	}
	// brief has a pod that was there for a moment, as one that was deleted then.
	brief := func(until int) map[string][]*Point {
		return map[string][]*Point{"a": append(points(1), &Point{
			Object: "shop/gone", Version: "1", First: at(100), Last: at(until), Earliest: at(99), Latest: at(until + 1),
		})}
	}
	tests := map[string]struct {
		stream Stream
		// points are those of two servers unless set, and ended is second 300.
		points map[string][]*Point
		ended  int
		got    []Sighting
		server string
		want   []string
	}{
		"as one server":    {got: delivered(1), server: "a"},
		"as the other one": {got: delivered(2), server: "b"},
		"nothing":          {want: []string{"nothing was delivered"}},
		"one is late": {got: moved(7, 125), server: "a", want: []string{
			`12:02:05: "shop/web-0 7" came when it was not served, at least from 12:01:30 to 12:01:45`}},
		"one is early": {got: moved(7, 80), server: "a", want: []string{
			`12:01:20: "shop/web-0 7" came when it was not served, at least from 12:01:30 to 12:01:45`}},
		"two in the wrong order": {got: swapped(7), server: "a", want: []string{
			`12:01:46: "shop/web-0 7" came after a newer one of its object`}},
		"to another server": {got: append(delivered(2)[:9], delivered(1)[18:]...), server: "b", want: []string{
			`12:04:30: "shop/web-0 19" came 1 times, was served 0 times, but by a: perhaps the stream moved there`}},
		"one is lost":       {got: slices.Delete(delivered(1), 7, 8), server: "a", want: []string{`"shop/web-0 7" came 0 times, was served 1 times`}},
		"the last is lost":  {got: delivered(1)[:18], server: "a", want: []string{`"shop/web-0 18" came 0 times, was served 1 times`, `"shop/web-0 19" came 0 times, was served 1 times`}},
		"one comes twice":   {got: slices.Insert(delivered(1), 7, delivered(1)[6]), server: "a", want: []string{`12:01:15: "shop/web-0 6" came 2 times, was served 1 times`}},
		"one is made up":    {got: append(delivered(1), Sighting{"shop/web-0 99", at(140)}), server: "a", want: []string{`12:02:20: "shop/web-0 99" came 1 times, was served 0 times`}},
		"listed":            {got: slices.Insert(delivered(1), 1, delivered(1)[1]), server: "a"},
		"another namespace": {stream: Stream{In: "blog/"}, got: delivered(1)[:1], server: "a", want: []string{`12:00:00: "shop/web-0 0" came 1 times, was served 0 times`}},
		"equal figures":     {stream: Stream{Identify: ByCells}, got: cells(delivered(1)), server: "a"},
		"one of two equals": {stream: Stream{Identify: ByCells}, got: slices.Delete(cells(delivered(1)), 7, 8), server: "a", want: []string{`"shop web-0 3" came 1 times, was served 2 times`}},

		// A list may be the answer of a server that has a point before the watched one has it.
		"listed by another": {
			ended: 40, server: "a",
			points: map[string][]*Point{"a": {node("1", -5, 15), node("2", 15, 30), node("3", 30, 45)}, "b": {node("2", 5, 20), node("4", 20, 45)}},
			got:    []Sighting{{"node-1 2", at(10)}, {"node-1 1", at(10)}, {"node-1 2", at(15)}, {"node-1 3", at(30)}},
		},

		"the last, as it goes": {points: gone, ended: 60, got: goes(Sighting{"shop/web-0 3", at(30)}), server: "a"},
		"the last, as kubectl prints it": {
			stream: Stream{Identify: ByCells}, points: gone, ended: 60, server: "a",
			got: []Sighting{{"shop web-0 1m", at(0)}, {"shop web-0 2m", at(15)}, {"shop web-0 3m", at(30)}},
		},
		"the last, twice": {points: gone, ended: 60, got: goes(Sighting{"shop/web-0 3", at(30)}, Sighting{"shop/web-0 3", at(30)}), server: "a",
			want: []string{`12:00:30: "shop/web-0 3" came 2 times, was served 0 times`}},
		"the last, long after it was gone": {points: gone, ended: 60, got: goes(Sighting{"shop/web-0 3", at(40)}), server: "a",
			want: []string{`12:00:40: "shop/web-0 3" came 1 times, was served 0 times`}},
		"not the last": {
			points: map[string][]*Point{"a": {pod("1", 0, 15), pod("2", 15, 30), pod("4", 30, 45)}}, ended: 60, server: "a",
			got:  goes(Sighting{"shop/web-0 3", at(30)}, Sighting{"shop/web-0 4", at(31)}),
			want: []string{`12:00:30: "shop/web-0 3" came 1 times, was served 0 times`},
		},
		"the last of another": {points: gone, ended: 60, got: goes(Sighting{"shop/web-00 3", at(30)}), server: "a",
			want: []string{`12:00:30: "shop/web-00 3" came 1 times, was served 0 times`}},

		"one of a moment":    {points: brief(101), ended: 285, got: delivered(1), server: "a"},
		"one that is missed": {points: brief(110), ended: 285, got: delivered(1), server: "a", want: []string{`"shop/gone 1" came 0 times, was served 1 times`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.stream.Identify == nil {
				test.stream.Identify = ByVersion
			}
			if test.points == nil {
				test.points, test.ended = map[string][]*Point{"a": points(1), "b": points(2)}, 300
			}
			server, wrong := test.stream.Judge(test.points, test.got, at(test.ended))
			if server != test.server {
				t.Errorf("compared with %q, want %q", server, test.server)
			}
			if diff := cmp.Diff(test.want, wrong); diff != "" {
				t.Errorf("what is wrong (-want +got):\n%s", diff)
			}
		})
	}
}

// moved has one that comes at another time.
func moved(i, second int) []Sighting {
	all := delivered(1)
	all[i].At = at(second)
	return all
}

// swapped has one and the next come about when the second replaces the first, the
// second before it.
func swapped(i int) []Sighting {
	all := delivered(1)
	all[i], all[i+1] = Sighting{all[i+1].ID, at(15*i - 1)}, Sighting{all[i].ID, at(15*i + 1)}
	return all
}

// cells is the same as kubectl prints it.
func cells(sightings []Sighting) []Sighting {
	for i := range sightings {
		sightings[i].ID = "shop web-0 " + strconv.Itoa(i/2)
	}
	return sightings
}
