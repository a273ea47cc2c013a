// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// ledger holds every data point that any check saw, of every version and
// replica that answered, to compare how they are named.
type ledger struct {
	mu sync.Mutex
	// named are the data points by object and sample, samples the samples by object
	// and resourceVersion; series are the resourceVersions of each stream.
	named   map[[2]string]*named
	samples map[[2]string]map[string]bool
	series  map[string][]map[string]bool
}

func newLedger() *ledger {
	return &ledger{
		named: map[[2]string]*named{}, samples: map[[2]string]map[string]bool{}, series: map[string][]map[string]bool{},
	}
}

// note takes in objects of one list, or events of one stream.
func (l *ledger) note(resource string, objects ...Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := map[string]map[string]bool{}
	for _, o := range objects {
		if o.Sample == "" || o.ResourceVersion == "" {
			continue
		}
		key := resource + " " + o.key()
		at := [2]string{key, o.Sample}
		if l.named[at] == nil {
			l.named[at] = &named{timestamp: o.Timestamp, versions: map[string]bool{}}
		}
		l.named[at].versions[o.ResourceVersion] = true
		put(l.samples, [2]string{key, o.ResourceVersion}, o.Timestamp.UTC().String())
		put(own, key, o.ResourceVersion)
	}
	for key, versions := range own {
		if len(versions) > 1 {
			l.series[key] = append(l.series[key], versions)
		}
	}
}

func put[K comparable](m map[K]map[string]bool, key K, value string) {
	if m[key] == nil {
		m[key] = map[string]bool{}
	}
	m[key][value] = true
}

// judge returns how many data points were seen, and what is wrong with their
// resourceVersions.
func (l *ledger) judge(resource string) (points int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, point := range l.named {
		if !isOf(at[0], resource) {
			continue
		}
		points++
		// Containers without work may have several data points of the same content; then
		// one stream tells of all of them, or replicas measured in the same second.
		if len(point.versions) > 1 && !point.ofOneSecond() &&
			!slices.ContainsFunc(l.series[at[0]], func(s map[string]bool) bool { return includes(s, point.versions) }) {
			return points, fmt.Errorf("one data point of %s came with the resourceVersions %q", at[0], slices.Sorted(maps.Keys(point.versions)))
		}
	}
	for at, samples := range l.samples {
		if isOf(at[0], resource) && len(samples) > 1 {
			return points, fmt.Errorf("data points of %s of %q have the same resourceVersion %q", at[0], slices.Sorted(maps.Keys(samples)), at[1])
		}
	}
	return points, nil
}

// named is what came with one content, and the resourceVersions that it came with.
type named struct {
	timestamp time.Time
	versions  map[string]bool
}

// ofOneSecond tells whether the resourceVersions are times, in milliseconds, that the
// timestamp, in whole seconds, cannot tell apart.
func (n *named) ofOneSecond() bool {
	var times []int64
	for version := range n.versions {
		ms, err := strconv.ParseInt(version, 10, 64)
		if err != nil {
			return false
		}
		if newer := time.UnixMilli(ms).Sub(n.timestamp); newer < 0 || newer > longestObject {
			return false
		}
		times = append(times, ms)
	}
	return slices.Max(times)-slices.Min(times) < time.Second.Milliseconds()
}

func isOf(key, resource string) bool {
	return len(key) > len(resource) && key[:len(resource)+1] == resource+" "
}

func includes(all, some map[string]bool) bool {
	for v := range some {
		if !all[v] {
			return false
		}
	}
	return true
}
