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
const Slack = 2 * time.Second

// Point is a data point that polls saw.
type Point struct {
	Object  string // NAMESPACE/NAME, or NAME of a node
	Version string // resourceVersion
	// Cells is what kubectl prints of it: name, CPU, memory and window.
	Cells string
	// First and Last are when the first and the last poll began that saw it.
	First, Last time.Time
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

// Stream is a watch.
type Stream struct {
	// Identify is the ID that a data point has in sightings.
	Identify func(*Point) string
	// Listed: the client lists before it watches, so that it sees what there is at the
	// beginning once more, and perhaps as another server has it.
	Listed bool
	// In is how the names of its objects begin, where it is not of all of them.
	In string
}

// Judge tells what is wrong with what a stream delivered until it ended: data points
// that it lost, had twice, or made up. It compares with the server that fits best,
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
	least, most := map[string]int{}, map[string]int{}
	for of := range points {
		for _, p := range points[of] {
			if !strings.HasPrefix(p.Object, s.In) {
				continue
			}
			id := s.Identify(p)
			if of == server {
				most[id]++
				if p.Last.After(began.Add(Slack)) && p.First.Before(ended.Add(-Slack)) {
					least[id]++
				}
			}
			if s.Listed && p.First.Before(began.Add(Slack)) && p.Last.After(began.Add(-Slack)) {
				most[id]++
			}
		}
	}
	count := map[string]int{}
	var wrong []string
	for _, sighting := range got {
		id := sighting.ID
		if count[id]++; count[id] > most[id] {
			wrong = append(wrong, fmt.Sprintf("%s: %q came %d times, was served %d times", sighting.At.Format(time.TimeOnly), id, count[id], most[id]))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(least)) {
		if count[id] < least[id] {
			wrong = append(wrong, fmt.Sprintf("%q came %d times, was served %d times", id, count[id], least[id]))
		}
	}
	return wrong
}
