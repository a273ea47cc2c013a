// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package delivery compares the data points that a watch delivered with those that
// polls of the servers saw meanwhile: one server must have had exactly these.
package delivery

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Slack is how much later than a watch a poll may see a data point, and the other
// way round. Each point must be the newest of its object for longer than that.
const Slack = 5 * time.Second

// Point is a data point that polls saw.
type Point struct {
	Object  string // NAMESPACE/NAME, or NAME of a node
	Version string // resourceVersion
	// Cells is what kubectl prints of it: name, CPU, memory and window.
	Cells string
	// First is when the first poll that saw it had ended, Last when the last one began:
	// from First to Last the server had it.
	First, Last time.Time
	// Earliest is when the last poll before it began, Latest when the first one after it
	// had ended, each zero without one: the server had it in between, and not before
	// or later.
	Earliest, Latest time.Time
}

// servedAt says that the server may have had it about then.
func (p *Point) servedAt(at time.Time) bool {
	return !at.Before(p.Earliest.Add(-Slack)) && (p.Latest.IsZero() || !at.After(p.Latest.Add(Slack)))
}

// lasted says that a watch cannot have missed it: a slow client may miss what is soon
// superseded, or of an object that is soon gone.
func (p *Point) lasted() bool { return p.Last.Sub(p.First) > Slack }

// names says that the ID is of the same object, by whichever of the two below.
func (p *Point) names(id string) bool {
	return strings.HasPrefix(id, p.Object+" ") || strings.HasPrefix(id, strings.Replace(p.Object, "/", " ", 1)+" ")
}

// ByVersion and ByCells are how a stream tells data points apart.
func ByVersion(p *Point) string { return p.Object + " " + p.Version }

// ByCells is a line of kubectl's, with single spaces.
func ByCells(p *Point) string {
	if namespace, _, found := strings.Cut(p.Object, "/"); found {
		return namespace + " " + p.Cells
	}
	return p.Cells
}

// Sighting is a data point that a watch delivered.
type Sighting struct {
	ID string
	At time.Time
}

// Stream is a watch of a client that lists first, as kubectl does: it sees what there is at the beginning once more, and
// perhaps as another server has it.
type Stream struct {
	// Identify is the ID that a data point has in sightings.
	Identify func(*Point) string
	// In is how the names of its objects begin, where it is not of all of them.
	In string
}

// Judge tells what is wrong with what a stream delivered until it ended: data points
// that it lost, had twice, made up, or delivered when the server had none or a newer
// one. It compares with the server that fits best,
// which it names. points are those of each server, in any order.
func (s Stream) Judge(points map[string][]*Point, got []Sighting, ended time.Time) (server string, wrong []string) {
	if len(got) == 0 {
		return "", []string{"nothing was delivered"}
	}
	for _, name := range slices.Sorted(maps.Keys(points)) {
		if of := s.compare(points, name, got, ended); server == "" || len(of) < len(wrong) {
			server, wrong = name, of
		}
	}
	return server, wrong
}

func (s Stream) compare(points map[string][]*Point, server string, got []Sighting, ended time.Time) []string {
	began := got[0].At
	// An ID may stand for several points: an idle container has the same figures again.
	least, may := map[string]int{}, map[string][]*Point{}
	others := map[string]string{} // another server with the point
	own := map[string][]*Point{}
	for _, of := range slices.Sorted(maps.Keys(points)) {
		for _, p := range points[of] {
			if !strings.HasPrefix(p.Object, s.In) {
				continue
			}
			id := s.Identify(p)
			if of == server {
				own[id], may[id] = append(own[id], p), append(may[id], p)
				if p.lasted() && p.Last.After(began.Add(Slack)) && p.First.Before(ended.Add(-Slack)) {
					least[id]++
				}
			} else {
				others[id] = of
			}
			if p.servedAt(began) {
				may[id] = append(may[id], p)
			}
		}
	}
	count := map[string]int{}
	newest := map[string]*Point{}
	var wrong []string
	for _, sighting := range got {
		id, at := sighting.ID, sighting.At.Format(time.TimeOnly)
		if count[id]++; count[id] > len(may[id]) {
			if count[id] == 1 && others[id] == "" && wasLast(points[server], sighting) {
				continue
			}
			text := fmt.Sprintf("%s: %q came %d times, was served %d times", at, id, count[id], len(may[id]))
			if other := others[id]; other != "" && len(own[id]) == 0 {
				text += ", but by " + other + ": perhaps the stream moved there"
			}
			wrong = append(wrong, text)
			continue
		}
		if !slices.ContainsFunc(may[id], func(p *Point) bool { return p.servedAt(sighting.At) }) {
			wrong = append(wrong, fmt.Sprintf("%s: %q came when it was not served, at least from %s to %s", at, id,
				may[id][0].First.Format(time.TimeOnly), may[id][0].Last.Format(time.TimeOnly)))
		}
		if len(own[id]) != 1 || len(may[id]) != 1 {
			continue // which one it is, or of whom, is not known
		}
		p := own[id][0]
		if last := newest[p.Object]; last != nil && p.First.Before(last.First) {
			wrong = append(wrong, fmt.Sprintf("%s: %q came after a newer one of its object", at, id))
			continue
		}
		newest[p.Object] = p
	}
	for _, id := range slices.Sorted(maps.Keys(least)) {
		if count[id] < least[id] {
			wrong = append(wrong, fmt.Sprintf("%q came %d times, was served %d times", id, count[id], least[id]))
		}
	}
	return wrong
}

// wasLast says that the object of what was delivered has not been served since, but was
// until a moment before: it may have gone before a poll saw its last point.
func wasLast(served []*Point, got Sighting) bool {
	known := false
	for _, p := range served {
		if !p.names(got.ID) {
			continue
		}
		if p.Latest.IsZero() || p.Latest.After(got.At.Add(Slack)) || p.Last.After(got.At) {
			return false
		}
		known = known || !p.Latest.Before(got.At.Add(-Slack))
	}
	return known
}
