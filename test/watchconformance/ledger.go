// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// ledger holds every data point that any check saw, of every version and
// replica that answered, to compare how they are named.
type ledger struct {
	mu sync.Mutex
	// versions are the resourceVersions by object and sample, samples the other
	// way round; series are those of each stream, in order.
	versions map[[2]string]map[string]bool
	samples  map[[2]string]map[string]bool
	series   map[string][]map[string]bool
}

func newLedger() *ledger {
	return &ledger{
		versions: map[[2]string]map[string]bool{}, samples: map[[2]string]map[string]bool{}, series: map[string][]map[string]bool{},
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
		put(l.versions, [2]string{key, o.Sample}, o.ResourceVersion)
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
	for at, versions := range l.versions {
		if !isOf(at[0], resource) {
			continue
		}
		points++
		// Two containers without work may have two data points of the same content;
		// then one stream tells of both.
		if len(versions) > 1 && !slices.ContainsFunc(l.series[at[0]], func(s map[string]bool) bool { return includes(s, versions) }) {
			return points, fmt.Errorf("one data point of %s came with the resourceVersions %q", at[0], slices.Sorted(maps.Keys(versions)))
		}
	}
	for at, samples := range l.samples {
		if isOf(at[0], resource) && len(samples) > 1 {
			return points, fmt.Errorf("data points of %s of %q have the same resourceVersion %q", at[0], slices.Sorted(maps.Keys(samples)), at[1])
		}
	}
	return points, nil
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
