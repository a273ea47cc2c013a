// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// checkState checks the invariants of a state after a body.
func checkState(t *testing.T, state *nodeState) {
	t.Helper()
	count := 0
	for key, p := range state.pods {
		if p.key != key || !validName([]byte(key.Namespace)) || !validName([]byte(key.Name)) || len(p.containers) == 0 {
			t.Errorf("pod %+v under %+v", p, key)
		}
		for i, c := range p.containers {
			count++
			if !validName([]byte(c.name())) || i > 0 && p.containers[i-1].name() >= c.name() {
				t.Errorf("container %q of %v after another one", c.name(), key)
			}
			if c.body != state.body {
				t.Errorf("container %q of %v is not in the newest body", c.name(), key)
			}
			if c.cpu < 0 || c.cpu > maxCPU || math.IsNaN(c.cpu) {
				t.Errorf("container %q of %v used %v s", c.name(), key, c.cpu)
			}
		}
	}
	if count != state.containers || len(chain(state)) != count {
		t.Errorf("%d containers, %d counted, %d in order", count, state.containers, len(chain(state)))
	}
}

// checkPoint checks the invariants of a point.
func checkPoint(t *testing.T, p *samplestore.Point, at float64) {
	t.Helper()
	if p.Window < minWindow || p.Window > time.Hour+maxFuture || p.Time > p.Newest || p.Newest.AsTime().After(sec(at).Add(maxFuture)) || len(p.Usages) == 0 || !slices.ContainsFunc(p.Usages, func(u samplestore.Usage) bool { return u.Memory > 0 }) {
		t.Errorf("point %+v at %v", p, sec(at))
	}
	if !slices.IsSortedFunc(p.Usages, func(a, b samplestore.Usage) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("usages out of order: %+v", p.Usages)
	}
	for _, u := range p.Usages {
		if u.CPU > maxCores*1e9 || u.Memory > maxBytes || u.Swap > maxBytes {
			t.Errorf("usage %+v", u)
		}
	}
}

// checkAgainst checks that samples in the state have the values of the reference. If
// several series differ only in labels that are ignored, the first one counts; the
// reference has them in the same order.
func checkAgainst(t *testing.T, state *nodeState, want []textSample, body string) {
	t.Helper()
	byName := map[string]textSample{}
	for _, s := range want {
		byName[s.Family+s.Labels] = s
	}
	for _, s := range found(state) {
		if w, ok := byName[s.Family+s.Labels]; ok && w.Value != s.Value {
			t.Errorf("%+v, the reference has %+v\nbody:\n%q", s, w, body)
		}
	}
}
