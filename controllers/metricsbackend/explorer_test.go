// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// pairs is for how long each change is tried with two faults, after every single one. Without it, only a part of
// the single ones is tried: all calls that are a part of an action of the table, and of the others one in eight.
var pairs = flag.Duration("pairs", 0, "how long TestExplore tries two faults in each change")

// TestExplore runs each change as it is, and then with a fault at a call. No version is ever routed to pods that do not serve
// it, or to nobody, or past a certificate; none leaves discovery that stays there otherwise; nothing of others is written
// without permission and a record; one operator writes; and all runs end in the same state, in which nothing is written.
func TestExplore(t *testing.T) {
	t.Parallel()
	seen := newCoverage()
	t.Run("changes", func(t *testing.T) {
		for name, c := range sampled(t, changes()) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				explore(t, name, c, seen)
			})
		}
	})
	t.Logf("%d runs, %d reconciliations, %d states of routing, %d transitions between them", seen.runs, seen.passes, len(seen.states), len(seen.steps))
	if seen.changes == len(changes()) {
		seen.checkRows(t)
	}
}

// explore runs a change, as it is and with faults.
func explore(t *testing.T, name string, c change, seen *coverage) {
	t.Helper()
	normal := newRun(c.cluster(t, name), c)
	if why := normal.toEnd(nil); why != "" {
		normal.failure(t, why)
		return
	}
	if c.takes != "" && !normal.decided[c.takes] {
		normal.failure(t, "never taken: "+c.takes)
	}
	seen.add(normal, nil)
	defer func() { seen.Lock(); defer seen.Unlock(); seen.changes++ }()
	want, known := normal.end(), map[string]bool{}
	add := func(x *run) {
		for _, key := range x.keys {
			known[key] = true
		}
	}
	add(normal)
	try := func(known map[string]bool, f tried, more ...fault) *run {
		x := normal.with(t, name, known, append([]fault{f.fault}, more...)...)
		why := x.violation
		if diff := gocmp.Diff(want, x.end()); why == "" && !known[x.key()] && diff != "" {
			why = "it ends in another state (-without a fault +with it):\n" + diff
		}
		if why != "" {
			x.failure(t, why)
			return nil
		}
		seen.add(x, &f)
		return x
	}
	faults := faultsOf(normal.points, c)
	for _, f := range faults {
		if !f.always && *pairs == 0 && !isSampled(name, f.fault) {
			continue
		}
		x := try(known, f)
		if x == nil {
			return
		}
		add(x)
	}
	random := rand.New(rand.NewPCG(uint64(len(faults)), 1)) //nolint:gosec // an order, not a secret
	for end := time.Now().Add(*pairs); time.Now().Before(end); {
		first := faults[random.IntN(len(faults))]
		x := try(known, first)
		if x == nil {
			return
		}
		second := faultsOf(x.points, c)
		if len(second) > 0 && try(nil, first, second[random.IntN(len(second))].fault) == nil {
			return
		}
	}
}

// with runs to the end with faults: from the reconciliation of the first one, with a new process, or from the change if the
// call is made only by a process that remembers what was before.
func (x *run) with(t *testing.T, name string, known map[string]bool, faults ...fault) *run {
	t.Helper()
	y := x.late(t, faults...)
	if y.violation = y.toEnd(known); y.fired > 0 || y.violation != "" {
		return y
	}
	y = newRun(x.change.cluster(t, name), x.change, faults...)
	y.stays = x.always
	y.violation = y.toEnd(known)
	return y
}

// late returns a run with faults that begins with the reconciliation of the first one, and a new process.
func (x *run) late(t *testing.T, faults ...fault) *run {
	t.Helper()
	before := faults[0].pass - 1
	y := newRun(x.snapshots[before].restore(t), x.change, faults...)
	y.passes, y.stays, y.breaks = before, x.always, x.breaks
	return y
}

// tried is a fault, and the rows whose action it meets.
type tried struct {
	fault
	rows []string
	// always: it is not left to chance, see isSampled.
	always bool
}

// faultsOf returns what can go wrong in a run: each kind once for each call, and action that it meets.
func faultsOf(points []point, c change) []tried {
	type key struct {
		name, row string
		kind      faultKind
	}
	known := map[key]bool{}
	var faults []tried
	for _, p := range points {
		var kinds []faultKind
		switch {
		case p.name == "create token":
		case p.write && p.changed && len(p.rows) > 0:
			kinds = append(kinds, killedBefore, killedAfter, answerLost, callFails)
		case p.write && p.changed:
			kinds = append(kinds, killedAfter, callFails)
		case p.cached:
			if p.differs {
				kinds = append(kinds, staleRead)
			}
			if strings.HasPrefix(p.name, "get ") {
				kinds = append(kinds, staleMissing)
			}
		}
		if c.other != nil && strings.Contains(p.name, "APIService") {
			kinds = append(kinds, otherWrites)
		}
		name := p.name
		if p.cached {
			name = strings.Join(strings.Fields(name)[:2], " ") // any of a kind
		}
		rows := p.rows
		if len(rows) == 0 && (p.write || p.differs) {
			rows = []string{""}
		}
		for _, kind := range kinds {
			isNew, always := false, false
			for _, row := range rows {
				isNew = isNew || !known[key{name, row, kind}]
				always = always || row != "" && (p.write || !known[key{"any", row, kind}])
				known[key{name, row, kind}], known[key{"any", row, kind}] = true, true
			}
			if isNew {
				faults = append(faults, tried{fault{p.pass, p.name, p.nth, kind}, p.rows, always})
			}
		}
	}
	return faults
}

// isSampled reports whether one of the other faults is tried each time.
func isSampled(name string, f fault) bool {
	hash := fnv.New32a()
	_, _ = fmt.Fprint(hash, name, f)
	return hash.Sum32()%8 == 0
}

// coverage is what the runs have seen.
type coverage struct {
	sync.Mutex
	changes, runs, passes  int
	states, steps, decided map[string]bool
	// faults are the kinds of faults that met the action of a row.
	faults map[string]map[faultKind]bool
}

func newCoverage() *coverage {
	return &coverage{states: map[string]bool{}, steps: map[string]bool{}, decided: map[string]bool{}, faults: map[string]map[faultKind]bool{}}
}

func (c *coverage) add(x *run, f *tried) {
	c.Lock()
	defer c.Unlock()
	c.runs, c.passes = c.runs+1, c.passes+len(x.keys)
	maps.Copy(c.states, x.states)
	maps.Copy(c.steps, x.steps)
	maps.Copy(c.decided, x.decided)
	met := func(row string, kind faultKind) {
		if c.faults[row] == nil {
			c.faults[row] = map[faultKind]bool{}
		}
		c.faults[row][kind] = true
	}
	if f != nil {
		for _, row := range f.rows {
			met(row, f.kind)
		}
		return
	}
	// Where the whole cache is as it was before, a stale one makes no difference.
	differs := map[int]bool{}
	for _, p := range x.points {
		differs[p.pass] = differs[p.pass] || p.differs
	}
	for _, p := range x.points {
		for _, row := range p.rows {
			if p.cached && !differs[p.pass] {
				met(row, staleRead)
			}
		}
	}
}

// checkRows checks that every row of the table was taken, and each one that acts with a crash before it, a crash after it,
// and a stale read.
func (c *coverage) checkRows(t *testing.T) {
	t.Helper()
	var missing []string
	for _, row := range lifecycle.Transitions() {
		name := rowOf(row.On, row.Do)
		if !c.decided[name] {
			missing = append(missing, name)
			continue
		}
		for _, kind := range []faultKind{killedBefore, killedAfter, staleRead} {
			if row.Do != "" && !c.faults[name][kind] {
				missing = append(missing, fmt.Sprintf("%s (never: %s)", name, kind))
			}
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		t.Errorf("not reached:\n%s", strings.Join(missing, "\n"))
	}
}
