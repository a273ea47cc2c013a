// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC)

// at is a data point of a pod, so many seconds after t0.
func at(seconds int, version, sample string) Object {
	return Object{Namespace: "a", Name: "web", ResourceVersion: version, Timestamp: t0.Add(time.Duration(seconds) * time.Second), Sample: sample}
}

func TestLedger(t *testing.T) {
	tests := map[string]struct {
		// reads are lists or streams.
		reads  [][]Object
		points int
		error  string
	}{
		"replayed": {
			reads:  [][]Object{{at(0, "1", "x"), at(10, "2", "y")}, {at(10, "2", "y")}},
			points: 2,
		},
		"another name on another replica": {
			reads:  [][]Object{{at(0, "1", "x")}, {at(0, "7", "x")}},
			points: 1,
			error:  `one data point of pods a/web came with the resourceVersions ["1" "7"]`,
		},
		"two data points of the same content, since nothing works there": {
			reads:  [][]Object{{at(0, "1", "x"), at(0, "2", "x")}, {at(0, "2", "x")}},
			points: 1,
		},
		"two data points of the same content and second, on two replicas": {
			reads:  [][]Object{{at(0, "1788091200345", "x")}, {at(0, "1788091200349", "x")}},
			points: 1,
		},
		"two times for one data point": {
			reads:  [][]Object{{at(0, "1788091200345", "x")}, {at(0, "1788091201345", "x")}},
			points: 1,
			error:  `one data point of pods a/web came with the resourceVersions ["1788091200345" "1788091201345"]`,
		},
		"one name for two data points": {
			reads:  [][]Object{{at(0, "1", "x")}, {at(10, "1", "y")}},
			points: 2,
			error:  `data points of pods a/web of ["2026-08-30 12:00:00 +0000 UTC" "2026-08-30 12:00:10 +0000 UTC"] have the same resourceVersion "1"`,
		},
		"without names":        {reads: [][]Object{{at(0, "", "x")}}},
		"metadata, or nothing": {reads: [][]Object{{at(0, "1", "")}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			for _, read := range test.reads {
				l.note("pods", read...)
			}
			l.note("nodes", Object{Name: "n", ResourceVersion: "1", Sample: "z"})
			points, err := l.judge("pods")
			message := ""
			if err != nil {
				message = err.Error()
			}
			if points != test.points || message != test.error {
				t.Errorf("%d points, want %d; error %q, want %q", points, test.points, message, test.error)
			}
		})
	}
}

// TestRecording: what lists say of a stream beside them.
func TestRecording(t *testing.T) {
	list := func(seconds int, objects ...Object) *listing {
		return &listing{ended: t0.Add(time.Duration(seconds) * time.Second), objects: objects}
	}
	added := func(seconds int, o Object) event {
		return event{Type: "ADDED", Object: o, At: t0.Add(time.Duration(seconds) * time.Second)}
	}
	gone := Object{Name: "gone", ResourceVersion: "5", Timestamp: t0}
	type outcome struct {
		Version string
		Sent    bool
		Delay   time.Duration
	}
	tests := map[string]struct {
		recording recording
		want      []outcome
		spread    time.Duration
	}{
		"each in time": {
			recording: recording{
				lists:  []*listing{list(1, at(0, "1", "x")), list(12, at(10, "2", "y"))},
				events: []event{added(0, at(0, "1", "x")), added(11, at(10, "2", "y"))},
			},
			want: []outcome{{"1", true, -time.Second}, {"2", true, -time.Second}},
		},
		"late, and one that a newer one superseded": {
			recording: recording{
				lists:  []*listing{list(1, at(0, "1", "x")), list(12, at(10, "2", "y")), list(22, at(20, "3", "z"))},
				events: []event{added(0, at(0, "1", "x")), added(30, at(20, "3", "z"))},
			},
			want: []outcome{{"1", true, -time.Second}, {"2", true, 18 * time.Second}, {"3", true, 8 * time.Second}},
		},
		"never": {
			recording: recording{
				lists:  []*listing{list(1, at(0, "1", "x")), list(12, at(10, "2", "y"))},
				events: []event{added(0, at(0, "1", "x")), {Type: "BOOKMARK", Object: at(10, "2", "y")}},
				ended:  t0.Add(20 * time.Second),
			},
			want: []outcome{{"1", true, -time.Second}, {"2", false, 8 * time.Second}},
		},
		"gone by the end": {
			recording: recording{lists: []*listing{list(1, gone, at(0, "1", "x")), list(2, at(0, "1", "x"))}, events: []event{added(0, at(0, "1", "x"))}},
			want:      []outcome{{"1", true, -time.Second}},
		},
		"two replicas, one of which is behind": {
			recording: recording{
				lists: []*listing{
					list(1, at(0, "1", "x")), list(12, at(10, "2", "y")), list(15, at(0, "1", "x")), list(19, at(0, "1", "x")), list(21, at(10, "2", "y")),
				},
				events: []event{added(0, at(0, "1", "x")), added(20, at(10, "2", "y"))},
			},
			want:   []outcome{{"1", true, -time.Second}, {"2", true, 8 * time.Second}},
			spread: 7 * time.Second,
		},
		"no list": {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []outcome
			for _, a := range test.recording.arrivals() {
				got = append(got, outcome{a.object.ResourceVersion, a.sent, a.delay})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("arrivals (-want +got):\n%s", diff)
			}
			if spread := test.recording.spread(); spread != test.spread {
				t.Errorf("lists differ by up to %s, want %s", spread, test.spread)
			}
		})
	}
}
