// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// faultKind is what goes wrong at one call of the operator.
type faultKind string

const (
	killedBefore faultKind = "the operator is killed before"
	killedAfter  faultKind = "the operator is killed after"
	answerLost   faultKind = "the answer is lost of"
	callFails    faultKind = "kube-apiserver refuses"
	staleRead    faultKind = "from here to the end of the reconciliation, the operator's cache is stale:"
	staleMissing faultKind = "the operator's cache does not have the object yet:"
	otherWrites  faultKind = "another manager writes the APIService before"
)

// fault is what goes wrong at a call of a reconciliation, the nth of its name there.
type fault struct {
	pass int
	name string
	nth  int
	kind faultKind
}

// point is a call of a run, at which something can go wrong.
type point struct {
	call
	pass, nth int
	// cached: it is a read of the operator's cache. differs: that has had another answer before.
	cached, differs bool
	// changed: it is a write that has changed something.
	changed bool
	// rows are transitions: of a write, the one that it is of; of a read, those that act in the reconciliation.
	rows []string
}

// run is one run of the real reconciler in a small cluster, from a change to its end, with faults.
type run struct {
	*fakeCluster
	change change
	faults []fault
	// breaks changes each new process, or is nil.
	breaks func(*run, *Reconciler)

	process *Reconciler
	// namespace is that of the operator that reconciles, and backend the MetricsBackend.
	namespace, backend string
	killed             bool
	staleKind          string
	passes, fired      int
	points             []point
	// counts has how often each call was made in this reconciliation.
	counts map[string]int
	// row is the transition whose action is being done, and retires are those that the next status stores.
	row     string
	retires []string
	// always are the versions that have been in discovery throughout; stays are those that must be.
	always, stays map[schema.GroupVersion]bool

	// story is what happened, a line for each event, and told the last decision about each version.
	story []string
	told  map[string]string
	// decided has each row that was taken; states and steps have what describe returned.
	decided, states, steps map[string]bool
	described              string
	// keys are those after each reconciliation, and snapshots the clusters before it, in a run without faults.
	keys      []string
	snapshots []*snapshot
}

var errKilled = errors.New("the process was killed")

func newRun(fc *fakeCluster, c change, faults ...fault) *run {
	x := &run{
		fakeCluster: fc, change: c, faults: faults, always: map[schema.GroupVersion]bool{}, stays: map[schema.GroupVersion]bool{}, told: map[string]string{},
		decided: map[string]bool{}, states: map[string]bool{}, steps: map[string]bool{},
	}
	for _, gv := range testVersions {
		x.always[gv] = fc.pointsToNow(gv) != ""
		x.stays[gv] = slices.Contains(c.stays, gv)
	}
	return x
}

// start starts a process of the operator in a namespace.
func (x *run) start(namespace string) *Reconciler {
	o := x.operator(x.change.after).Options
	o.Client = interceptor.NewClient(x.raw, intercepted(x.calls(true)))
	reads := intercepted(x.calls(false))
	o.APIReader = interceptor.NewClient(x.server, interceptor.Funcs{Get: reads.Get, List: reads.List})
	if namespace != systemNamespace {
		o.Namespace, o.Namespaces = namespace, []string{namespace}
	}
	r := New(o)
	r.next = func(v *lifecycle.Version) lifecycle.Decision { return x.noteDecision(v, lifecycle.Decide(v)) }
	if x.breaks != nil {
		x.breaks(x, r)
	}
	return r
}

// rowOf names a transition.
func rowOf(on string, do lifecycle.Action) string {
	return strings.TrimSuffix(on+": "+string(do), ": ")
}

func (x *run) noteDecision(v *lifecycle.Version, d lifecycle.Decision) lifecycle.Decision {
	if d.On == "" || d.Needs != "" {
		return d
	}
	row := rowOf(d.On, d.Action)
	x.decided[row] = true
	switch d.Action {
	case "":
	case lifecycle.Retire:
		x.retires = append(x.retires, row)
	default:
		x.row = row
	}
	if line := fmt.Sprintf("%s: %s, %s", shortVersion(v.GV), d.State, row); x.told[v.Name()] != line {
		x.told[v.Name()] = line
		x.tell("the operator decides on " + line)
	}
	return d
}

func (x *run) tell(line string) {
	x.story = append(x.story, x.clock.Now().Format("15:04:05  ")+line)
}

// calls makes each call of a process, or the fault at it.
func (x *run) calls(cached bool) func(call, func() error) error {
	return func(c call, do func() error) error {
		if x.killed {
			return errKilled
		}
		number, written := len(x.points), x.memo.written
		p := point{call: c, cached: cached && !c.write, nth: x.counts[c.name], pass: x.passes}
		x.counts[c.name]++
		switch {
		case c.name == patchStatus:
			p.rows = x.retires
		case c.write && x.row != "":
			p.rows = []string{x.row}
		}
		x.points = append(x.points, p)
		for _, f := range x.faults {
			if f == (fault{p.pass, p.name, p.nth, f.kind}) {
				x.fired++
				return x.fail(f.kind, c, do)
			}
		}
		if p.cached {
			x.memo.stale, x.memo.differs, x.memo.compares = x.staleKind, false, len(x.faults) == 0
			defer func() { x.memo.stale, x.memo.compares = "", false }()
		}
		err := x.make(c, do)
		x.points[number].differs, x.points[number].changed = p.cached && x.memo.differs, x.memo.written != written
		return err
	}
}

// make makes a call, and checks what it wrote.
func (x *run) make(c call, do func() error) error {
	if !c.write {
		return do()
	}
	before, written := x.allAPIServices(), x.memo.written
	err := do()
	if x.memo.written == written {
		return err
	}
	x.checkWriter(c)
	x.checkPermission(before)
	if strings.Contains(c.name, "APIService") {
		x.tell("the operator does " + c.name)
	}
	x.check("after " + c.name)
	return err
}

func (x *run) fail(kind faultKind, c call, do func() error) error {
	x.tell(fmt.Sprintf("FAULT: %s %s", kind, c.name))
	timeout := apierrors.NewTimeoutError("the request timed out", 1)
	switch kind {
	case killedBefore, killedAfter:
		if kind == killedAfter {
			_ = x.make(c, do)
		}
		x.killed = true
		return errKilled
	case answerLost:
		_ = x.make(c, do)
		return timeout
	case callFails:
		if x.passes%2 == 0 {
			return apierrors.NewConflict(corev1.Resource("anything"), "x", errors.New("changed"))
		}
		return timeout
	case staleRead:
		x.memo.stale = anyKind
		err := do()
		x.staleKind, x.memo.stale = x.memo.lastKind, ""
		return err
	case staleMissing:
		return apierrors.NewNotFound(corev1.Resource("anything"), "x")
	}
	x.change.other(x.fakeCluster)
	return x.make(c, do)
}

// reconcile is one reconciliation by each operator of each MetricsBackend, and a step of the cluster.
func (x *run) reconcile() {
	if len(x.faults) == 0 {
		s := &snapshot{}
		s.take(x.fakeCluster)
		x.snapshots = append(x.snapshots, s)
	}
	x.passes++
	x.counts = map[string]int{}
	for _, backend := range x.change.backends() {
		if x.process == nil || x.killed {
			x.killed, x.process = false, x.start(systemNamespace)
		}
		x.reconcileBy(x.process, backend)
	}
	if x.change.second {
		x.renewLease(systemNamespace)
		x.renewLease(secondNamespace)
		x.reconcileBy(x.start(secondNamespace), backendName)
	}
	x.step()
	if strings.Contains(x.told[v1beta1Name], "less than a minute") {
		x.clock.Step(lifecycle.AuthorityTime) // nothing else is waited for
	}
	if x.change.meanwhile != nil {
		x.change.meanwhile(x.fakeCluster)
	}
	x.check("after a step of the cluster")
	x.keys = append(x.keys, x.key())
}

func (x *run) reconcileBy(r *Reconciler, backend string) {
	x.namespace, x.backend, x.row, x.staleKind, x.retires = r.Namespace, backend, "", "", nil
	begin := len(x.points)
	// Errors are those of the faults: the queue tries again.
	_, _ = r.Reconcile(klog.NewContext(x.t.Context(), logr.Discard()), ctrl.Request{NamespacedName: types.NamespacedName{Name: backend}})
	var rows []string
	for _, p := range x.points[begin:] {
		rows = append(rows, p.rows...)
	}
	for i := range x.points[begin:] {
		if p := &x.points[begin+i]; !p.write {
			p.rows = rows
		}
	}
	x.check("after a reconciliation")
}

// check checks the invariants, and takes note of a new state.
func (x *run) check(when string) {
	x.checkInvariant(when)
	x.checkViews(when)
	x.checkStays(when)
	if x.violation == "" {
		x.violation = x.certs.violation
	}
	state := x.describe()
	if state == x.described {
		return
	}
	for line := range strings.Lines(state) {
		if !strings.Contains(x.described, line) {
			x.tell("  " + strings.TrimSpace(line))
		}
	}
	x.states[state], x.steps[x.described+"\n->\n"+state], x.described = true, true, state
}

// toEnd runs until the change is done and nothing is written any more, or until the cluster is in a known state, from which
// another run has come to its end. It returns what is wrong, or "".
func (x *run) toEnd(known map[string]bool) string {
	const maxPasses, quiet = 150, 3
	for silent := 0; x.violation == ""; {
		switch over := x.faultsOver(); {
		case over && !x.killed && known[x.key()], silent == quiet:
			return ""
		case x.passes == maxPasses:
			return fmt.Sprintf("after %d reconciliations it is not done, or still writes", maxPasses)
		}
		done := x.change.done(x.fakeCluster)
		x.reconcile()
		if silent++; !done || !x.faultsOver() || x.hasWritten() {
			silent = 0
		}
	}
	return x.violation
}

func (x *run) faultsOver() bool {
	return !slices.ContainsFunc(x.faults, func(f fault) bool { return f.pass > x.passes })
}

// hasWritten reports whether the operator changed anything in the last reconciliation.
func (x *run) hasWritten() bool {
	return slices.ContainsFunc(x.points, func(p point) bool { return p.pass == x.passes && p.changed && p.name != "create token" })
}

// end is the state in which a run ended.
func (x *run) end() string {
	if x.isGone() || x.change.anyStatus {
		return x.describe()
	}
	return x.endState() + x.describe()
}

// key names the state of the cluster: all that a new process reads, but the times.
func (x *run) key() string {
	if x.isGone() {
		return x.describe()
	}
	key := x.endState() + x.describe() + fmt.Sprint(x.discovered, x.stepsTerminating)
	all := x.allAPIServices()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		key += fmt.Sprint("\n", name, all[name].Labels, all[name].Annotations, all[name].Status.Conditions)
	}
	for _, view := range x.views {
		key += fmt.Sprint("\n", view.waits)
	}
	return key
}

// describe is where requests for the versions go, and what is there, a line for each.
func (x *run) describe() string {
	out := ""
	for _, gv := range testVersions {
		if to := x.pointsToNow(gv); to != "" {
			out += fmt.Sprintf("%s points to %s\n", shortVersion(gv), to)
		}
	}
	for _, view := range x.views {
		for _, gv := range testVersions {
			if seen := view.seen[gv]; seen != nil && seen.Spec.Service != nil {
				out += fmt.Sprintf("kube-apiserver %s sends %s to %s/%s\n", view.address, shortVersion(gv), seen.Spec.Service.Namespace, seen.Spec.Service.Name)
			}
		}
	}
	pods := map[string]int{}
	for _, p := range x.pods() {
		state := "not ready"
		switch {
		case p.DeletionTimestamp != nil:
			state = "ending"
		case isReady(&p):
			state = "ready"
		}
		pods[fmt.Sprintf("of MetricsBackend %s with image %s: %s", p.Labels[v1alpha1.LabelBackend], imageOf(&p.Spec), state)]++
	}
	for _, pod := range slices.Sorted(maps.Keys(pods)) {
		out += fmt.Sprintf("%d pods %s\n", pods[pod], pod)
	}
	return out
}

// failure reports a run that should have ended otherwise, as a story.
func (x *run) failure(t *testing.T, what string) {
	t.Helper()
	t.Errorf("%s\n%s", strings.Join(x.story, "\n"), what)
}
