// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"slices"
	"strconv"
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
	servers := map[string][]*Point{"a": points(1), "b": points(2)}
	tests := map[string]struct {
		stream Stream
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
		"listed":            {stream: Stream{Listed: true}, got: slices.Insert(delivered(1), 1, delivered(1)[1]), server: "a"},
		"listed, then two":  {stream: Stream{Listed: true}, got: slices.Insert(delivered(1), 7, delivered(1)[6]), server: "a", want: []string{`12:01:15: "shop/web-0 6" came 2 times, was served 1 times`}},
		"not listed":        {got: slices.Insert(delivered(1), 1, delivered(1)[1]), server: "a", want: []string{`12:00:00: "shop/web-0 1" came 2 times, was served 1 times`}},
		"another namespace": {stream: Stream{In: "blog/"}, got: delivered(1)[:1], server: "a", want: []string{`12:00:00: "shop/web-0 0" came 1 times, was served 0 times`}},
		"equal figures":     {stream: Stream{Identify: ByCells}, got: cells(delivered(1)), server: "a"},
		"one of two equals": {stream: Stream{Identify: ByCells}, got: slices.Delete(cells(delivered(1)), 7, 8), server: "a", want: []string{`"shop web-0 3" came 1 times, was served 2 times`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.stream.Identify == nil {
				test.stream.Identify = ByVersion
			}
			server, wrong := test.stream.Judge(servers, test.got, at(300))
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

// A list may be the answer of a server that has a point before the watched one has it.
func TestJudgeListOfAnother(t *testing.T) {
	point := func(version string, first, last int) *Point {
		return &Point{Object: "node-1", Version: version, Earliest: at(first), First: at(first), Last: at(last), Latest: at(last)}
	}
	servers := map[string][]*Point{
		"a": {point("1", -5, 15), point("2", 15, 30), point("3", 30, 45)},
		"b": {point("2", 5, 20), point("4", 20, 45)},
	}
	got := []Sighting{{"node-1 2", at(10)}, {"node-1 1", at(10)}, {"node-1 2", at(15)}, {"node-1 3", at(30)}}
	server, wrong := Stream{Identify: ByVersion, Listed: true}.Judge(servers, got, at(40))
	if server != "a" || len(wrong) > 0 {
		t.Errorf("compared with %q: %q", server, wrong)
	}
}

// A pod may be gone before a poll has seen its last point.
func TestJudgeLastOfAnObject(t *testing.T) {
	point := func(version string, first, last int) *Point {
		return &Point{Object: "shop/web-0", Version: version, Cells: "web-0 " + version + "m",
			Earliest: at(first), First: at(first), Last: at(last), Latest: at(last)}
	}
	gone := map[string][]*Point{"a": {point("1", 0, 15), point("2", 15, 30)}}
	tests := map[string]struct {
		stream Stream
		points map[string][]*Point
		last   []Sighting
		want   []string
	}{
		"as it goes":           {points: gone, last: []Sighting{{"shop/web-0 3", at(30)}}},
		"as kubectl prints it": {stream: Stream{Identify: ByCells}, points: gone, last: []Sighting{{"shop web-0 3m", at(30)}}},
		"twice": {points: gone, last: []Sighting{{"shop/web-0 3", at(30)}, {"shop/web-0 3", at(30)}},
			want: []string{`12:00:30: "shop/web-0 3" came 2 times, was served 0 times`}},
		"long after it was gone": {points: gone, last: []Sighting{{"shop/web-0 3", at(40)}},
			want: []string{`12:00:40: "shop/web-0 3" came 1 times, was served 0 times`}},
		"of one that goes on": {points: map[string][]*Point{"a": {point("1", 0, 15), point("2", 15, 30), point("4", 30, 45)}},
			last: []Sighting{{"shop/web-0 3", at(30)}, {"shop/web-0 4", at(31)}},
			want: []string{`12:00:30: "shop/web-0 3" came 1 times, was served 0 times`}},
		"of another": {points: gone, last: []Sighting{{"shop/web-00 3", at(30)}},
			want: []string{`12:00:30: "shop/web-00 3" came 1 times, was served 0 times`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := []Sighting{{"shop/web-0 1", at(0)}, {"shop/web-0 2", at(15)}}
			if test.stream.Identify == nil {
				test.stream.Identify = ByVersion
			} else {
				got = []Sighting{{"shop web-0 1m", at(0)}, {"shop web-0 2m", at(15)}}
			}
			_, wrong := test.stream.Judge(test.points, append(got, test.last...), at(60))
			if diff := cmp.Diff(test.want, wrong); diff != "" {
				t.Errorf("what is wrong (-want +got):\n%s", diff)
			}
		})
	}
}

// A point that was there for a moment, as of a pod that was deleted then, may be missed.
func TestJudgeMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		until int
		want  []string
	}{
		"a moment":  {until: 101},
		"some time": {until: 110, want: []string{`"shop/gone 1" came 0 times, was served 1 times`}},
	} {
		t.Run(name, func(t *testing.T) {
			gone := &Point{Object: "shop/gone", Version: "1", First: at(100), Last: at(tc.until), Earliest: at(99), Latest: at(tc.until + 1)}
			_, wrong := Stream{Identify: ByVersion}.Judge(map[string][]*Point{"a": append(points(1), gone)}, delivered(1), at(285))
			if diff := cmp.Diff(tc.want, wrong); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
