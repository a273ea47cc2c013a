// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package declaredmetric

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

func TestConditions(t *testing.T) {
	const good = "Ready=True Succeeded: the newest evaluation gave values"
	cases := map[string]struct {
		// reports are those of pods a, b, …
		reports [][]v1alpha1.DeclaredHealth
		want    []string
	}{
		"well": {reports: [][]v1alpha1.DeclaredHealth{{health("q")}, {health("q")}}, want: []string{good}},
		"one of two pods fails": {
			reports: [][]v1alpha1.DeclaredHealth{{health("q")}, {health("q", fails("Timeout", "no answer within 10s."))}},
			want:    []string{"Ready=False Timeout: no answer within 10s (as 1 of 2 serving pods see it)"},
		},
		"the source refuses the query": {
			reports: [][]v1alpha1.DeclaredHealth{{health("q", fails("Rejected", "parse error: unexpected }"))}},
			want:    []string{"Ready=False Rejected: parse error: unexpected }", "Stalled=True Rejected: parse error: unexpected }"},
		},
		"a fallback": {
			reports: [][]v1alpha1.DeclaredHealth{{health("q", fails("Timeout", "slow"), func(h *v1alpha1.DeclaredHealth) { h.Fallback, h.Value, h.Values = true, "3", 1 })}},
			want:    []string{"Ready=False Timeout: slow", "Fallback=True InUse: spec.fallback stands in for the values, see Ready"},
		},
		"declared twice": {
			reports: [][]v1alpha1.DeclaredHealth{{health("q", fails("Collision", "ExternalMetric other is older"))}},
			want: []string{
				"Ready=False Collision: ExternalMetric other is older", "Stalled=True Collision: ExternalMetric other is older",
				"Collision=True Collision: ExternalMetric other is older",
			},
		},
		"a rule makes it, too": {
			reports: [][]v1alpha1.DeclaredHealth{{health("q", func(h *v1alpha1.DeclaredHealth) {
				h.Reason, h.Message = "Collision", "spec.externalMetrics.rules[0] makes it, too, and does not count"
			})}},
			want: []string{good, "Collision=True Collision: spec.externalMetrics.rules[0] makes it, too, and does not count"},
		},
		"a pod has not read the new spec": {
			reports: [][]v1alpha1.DeclaredHealth{{health("q")}, {health("q", func(h *v1alpha1.DeclaredHealth) { h.Generation = 1 })}},
			want: []string{
				"Ready=Unknown Progressing: serving pod b has not taken up the metric yet",
				"Reconciling=True Progressing: serving pod b has not taken up the metric yet",
			},
		},
		"an object of the same name before it": {
			reports: [][]v1alpha1.DeclaredHealth{{health("q", func(h *v1alpha1.DeclaredHealth) { h.UID = "another" })}},
			want: []string{
				"Ready=Unknown Progressing: serving pod a has not taken up the metric yet",
				"Reconciling=True Progressing: serving pod a has not taken up the metric yet",
			},
		},
		"not evaluated yet": {
			reports: [][]v1alpha1.DeclaredHealth{{health("q", fails("", ""))}},
			want: []string{
				"Ready=Unknown Progressing: it is being evaluated for the first time",
				"Reconciling=True Progressing: it is being evaluated for the first time",
			},
		},
		"its source has not answered yet": {
			reports: [][]v1alpha1.DeclaredHealth{{health("q", fails("Pending", "the source has not answered yet"))}},
			want: []string{
				"Ready=Unknown Progressing: it is being evaluated for the first time",
				"Reconciling=True Progressing: it is being evaluated for the first time",
			},
		},
		"a pod that has just started": {reports: [][]v1alpha1.DeclaredHealth{{health("q")}, {health("q", fails("", ""))}}, want: []string{good}},
		"foreign text": {
			reports: [][]v1alpha1.DeclaredHealth{{health("q", fails("no reason at all", "\x1b[2J"+strings.Repeat("ä", 2000)))}},
			want:    []string{"Ready=False Failing: ?[2J" + strings.Repeat("ä", (maxMessage-len("?[2J…"))/2) + "…"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, serving(), queue("q"))
			names := []string{"a", "b"}[:len(tc.reports)]
			w.pods(names...)
			for i, pod := range names {
				w.reports[pod] = &v1alpha1.DeclaredReport{Metrics: tc.reports[i]}
			}
			w.poll(w.controller())
			if diff := cmp.Diff(tc.want, w.conditions("q")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := w.external("q").Status.ObservedGeneration; got != 2 {
				t.Errorf("observedGeneration is %d", got)
			}
		})
	}
}

// Of pods that disagree the newest values count.
func TestNewestValues(t *testing.T) {
	w := newWorld(t, serving(), queue("q"))
	w.pods("a", "b", "c")
	at := func(second int, value string, values int) *v1alpha1.DeclaredReport {
		return &v1alpha1.DeclaredReport{Metrics: []v1alpha1.DeclaredHealth{health("q", func(h *v1alpha1.DeclaredHealth) {
			h.Time, h.Value, h.Values = metav1.Date(2026, 11, 1, 11, 59, second, 0, time.UTC), value, values
		})}}
	}
	w.reports["a"], w.reports["b"], w.reports["c"] = at(10, "1", 1), at(30, "", 12), at(20, "3", 1)
	w.poll(w.controller())
	status := w.external("q").Status
	if status.Value != "12 values" || status.Values != 12 || status.Time.Second() != 30 {
		t.Errorf("got %q, %d at %v", status.Value, status.Values, status.Time)
	}
}

// What the statuses say stays while nobody tells anything for a moment.
func TestNoReports(t *testing.T) {
	cases := map[string]struct {
		happen func(*world)
		reason string
	}{
		"pods fail":      {func(w *world) { w.errs["a"] = errors.New("dial: connection refused") }, v1alpha1.ReasonProbeFailed},
		"no pod is left": {func(w *world) { w.pods() }, v1alpha1.ReasonDependencyNotReady},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, serving(), queue("q"))
			w.pods("a")
			w.say(health("q"))
			c := w.controller()
			w.poll(c)
			before := w.writes
			tc.happen(w)
			for range 14 {
				w.clock.Step(pollInterval)
				w.poll(c)
			}
			if w.writes != before {
				t.Errorf("written after a moment: %v", w.conditions("q"))
			}
			for range 4 {
				w.clock.Step(pollInterval)
				w.poll(c)
			}
			ready := w.ready("q")
			if ready.Status != metav1.ConditionUnknown || ready.Reason != tc.reason || w.writes != before+1 {
				t.Errorf("Ready is %+v after %d writes", ready, w.writes-before)
			}
			if got := w.external("q").Status.Value; got != "7" {
				t.Errorf("the last value is gone: %q", got)
			}
		})
	}
	t.Run("the operator has just started", func(t *testing.T) {
		w := newWorld(t, serving(), queue("q"))
		c := w.controller()
		for range 100 {
			w.clock.Step(pollInterval)
			w.poll(c)
		}
		if w.writes > 0 {
			t.Errorf("written although nothing is known of the backend: %v", w.conditions("q"))
		}
	})
}

// Why nobody serves a metric, or tells of it, is written once: neither the object nor the
// time of its last transition changes again.
func TestSteadyProblems(t *testing.T) {
	const nobody = "no MetricsBackend serves ExternalMetrics"
	cases := map[string]struct {
		objects []client.Object
		pods    []string
		// want begin the conditions, and part is in the first.
		want []string
		part string
	}{
		"no MetricsBackend at all": {
			want: []string{"Ready=False NoBackend: ", "Stalled=True NoBackend: "}, part: nobody + ": an administrator can set spec.externalMetrics in one",
		},
		"one that serves another API": {
			objects: []client.Object{serving(func(b *v1alpha1.MetricsBackend) { b.Spec.ExternalMetrics = nil })},
			pods:    []string{"a"}, want: []string{"Ready=False NoBackend: ", "Stalled=True NoBackend: "}, part: nobody,
		},
		"one that leaves it to others": {
			objects: []client.Object{serving(func(b *v1alpha1.MetricsBackend) { b.Spec.Existing = &v1alpha1.ExistingSpec{} })},
			pods:    []string{"a"}, want: []string{"Ready=False NoBackend: ", "Stalled=True NoBackend: "}, part: "leaves the API to spec.existing",
		},
		"no pod is ready": {
			objects: []client.Object{serving()},
			want:    []string{"Ready=Unknown DependencyNotReady: "},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(tc.objects, queue("q"))...)
			w.pods(tc.pods...)
			c := w.controller()
			pass := func(d time.Duration) {
				for range int(d / pollInterval) {
					w.poll(c)
					w.clock.Step(pollInterval)
				}
			}
			pass(time.Minute)
			before, conditions := w.ready("q"), w.conditions("q")
			if !slices.EqualFunc(conditions, tc.want, strings.HasPrefix) || !strings.Contains(before.Message, tc.part) {
				t.Errorf("got %q, want %q with %q", conditions, tc.want, tc.part)
			}
			pass(time.Hour)
			if diff := cmp.Diff(before, w.ready("q")); diff != "" {
				t.Errorf("after an hour (-before +after):\n%s", diff)
			}
			if w.writes != 1 {
				t.Errorf("%d writes, want one", w.writes)
			}
		})
	}
}

// Of several backends the one counts whose version is registered.
func TestWhichBackend(t *testing.T) {
	older := serving(func(b *v1alpha1.MetricsBackend) {
		b.Name, b.CreationTimestamp = "older", metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	})
	younger := serving(func(b *v1alpha1.MetricsBackend) {
		b.Name, b.CreationTimestamp = "younger", metav1.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
		b.Status.APIServices = []v1alpha1.APIServiceStatus{
			{Name: "v1beta1.external.metrics.k8s.io", State: v1alpha1.APIServiceAvailable},
			{Name: "v1beta2.custom.metrics.k8s.io", State: v1alpha1.APIServicePending},
		}
	})
	for kind, want := range map[string]string{kindExternal: "younger", kindCustom: "older"} {
		if got, why := backendOf(kind, []v1alpha1.MetricsBackend{*younger, *older}); got != want || why != nil {
			t.Errorf("%s: %q, %v, want %q", kind, got, why, want)
		}
	}
}

// A steady state writes nothing, whatever time passes; values are written once a
// minute, conditions at once.
func TestWriteBudget(t *testing.T) {
	w := newWorld(t, serving(), queue("q"))
	w.pods("a")
	c := w.controller()
	// pass lets time pass, in polls; each evaluation has a new time.
	pass := func(d time.Duration, say func(i int) v1alpha1.DeclaredHealth) int {
		t.Helper()
		before := w.writes
		for i := range int(d / pollInterval) {
			h := say(i)
			h.Time = metav1.Time{Time: w.clock.Now()}
			w.say(h)
			w.poll(c)
			w.clock.Step(pollInterval)
		}
		return w.writes - before
	}
	if got := pass(pollInterval, func(int) v1alpha1.DeclaredHealth { return health("q") }); got != 1 {
		t.Fatalf("%d writes at first", got)
	}
	if got := pass(24*time.Hour, func(int) v1alpha1.DeclaredHealth { return health("q") }); got != 0 {
		t.Errorf("%d writes in a day with a constant value", got)
	}
	changing := func(i int) v1alpha1.DeclaredHealth {
		return health("q", func(h *v1alpha1.DeclaredHealth) { h.Value = fmt.Sprint(i) })
	}
	if got := pass(10*time.Minute, changing); got != 10 {
		t.Errorf("%d writes in ten minutes of changing values, want one a minute", got)
	}
	if got := pass(pollInterval, func(int) v1alpha1.DeclaredHealth { return health("q", fails("Timeout", "slow")) }); got != 1 {
		t.Errorf("%d writes when it failed, want one at once", got)
	}
	if got := pass(10*time.Minute, func(i int) v1alpha1.DeclaredHealth { return health("q", fails("Timeout", fmt.Sprint("try ", i))) }); got > 10 {
		t.Errorf("%d writes in ten minutes of changing words", got)
	}
	flapping := func(i int) v1alpha1.DeclaredHealth {
		if i%2 == 0 {
			return health("q")
		}
		return health("q", fails("Timeout", "slow"))
	}
	if got := pass(10*time.Minute, flapping); got > int(10*time.Minute/transitionInterval) {
		t.Errorf("%d writes in ten minutes of going to and fro", got)
	}
}

// TestTooManyMetrics: of too many in a namespace the youngest are told that they are not used,
// once, and the others are as ever.
func TestTooManyMetrics(t *testing.T) {
	objects := []client.Object{serving()}
	var reported []v1alpha1.DeclaredHealth
	for i := range v1alpha1.MaxMetricsPerNamespace + 1 {
		m := queue(fmt.Sprintf("q%04d", v1alpha1.MaxMetricsPerNamespace-i)) // the last by name is the oldest
		m.CreationTimestamp = metav1.Date(2026, 1, 1, 0, 0, i, 0, time.UTC)
		objects, reported = append(objects, m), append(reported, health(m.Name))
	}
	w := newWorld(t, objects...)
	w.pods("a")
	w.say(reported...)
	c := w.controller()
	for range len(reported)/maxWrites + 1 {
		w.poll(c)
		w.clock.Step(pollInterval)
	}
	const message = "TooManyMetrics: there are more ExternalMetrics than are used: the oldest 1000 of a namespace, and fewer if the cluster has more than 5000. Delete older ones that are not needed"
	if diff := cmp.Diff([]string{"Ready=False " + message, "Stalled=True " + message}, w.conditions("q0000")); diff != "" {
		t.Errorf("the youngest (-want +got):\n%s", diff)
	}
	if got := w.ready("q0001"); got.Status != metav1.ConditionTrue {
		t.Errorf("the second youngest: %+v", got)
	}
	before := w.writes
	w.clock.Step(time.Hour)
	w.poll(c)
	if before != len(reported) || w.writes != before {
		t.Errorf("%d writes, then %d, want %d in all", before, w.writes-before, len(reported))
	}
	// It moves up when another goes, and what was not kept of it stays in its status.
	w.setValue("q0000", "41")
	fails("Timeout", "slow")(&reported[len(reported)-1])
	w.say(reported...)
	if err := w.client.Delete(t.Context(), queue("q0500")); err != nil {
		t.Fatal(err)
	}
	since := w.ready("q0000").LastTransitionTime
	w.poll(c)
	if got := w.ready("q0000"); got.Reason != "Timeout" || !got.LastTransitionTime.Equal(&since) || w.external("q0000").Status.Value != "41" {
		t.Errorf("moved up: %+v since %v, value %q", got, since, w.external("q0000").Status.Value)
	}
	// And it is told again when it must go.
	w.add(queue("q0500"), metav1.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))
	w.clock.Step(transitionInterval)
	w.poll(c)
	if got := w.ready("q0000"); got.Reason != v1alpha1.ReasonTooManyMetrics {
		t.Errorf("left out again: %+v", got)
	}
}

// TestNamespacesTakeTurns: many changes in one namespace do not delay those of another.
func TestNamespacesTakeTurns(t *testing.T) {
	elsewhere := queue("q")
	elsewhere.Namespace, elsewhere.UID = "zoo", "uid-zoo"
	objects := []client.Object{serving(), elsewhere}
	reported := []v1alpha1.DeclaredHealth{health("q", func(h *v1alpha1.DeclaredHealth) { h.Namespace, h.UID = "zoo", "uid-zoo" })}
	for i := range 2 * maxWrites {
		name := fmt.Sprintf("q%03d", i)
		objects, reported = append(objects, queue(name)), append(reported, health(name))
	}
	w := newWorld(t, objects...)
	w.pods("a")
	w.say(reported...)
	w.poll(w.controller())
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(elsewhere), elsewhere); err != nil {
		t.Fatal(err)
	}
	if w.writes != maxWrites || elsewhere.Status.Value != "7" {
		t.Errorf("after %d writes the other namespace's status is %+v", w.writes, elsewhere.Status)
	}
}

// However many change at once, the operator's other work goes on, and what turned
// goes before new values.
func TestManyAtOnce(t *testing.T) {
	objects := []client.Object{serving()}
	var good, bad []v1alpha1.DeclaredHealth
	const all = 150
	for i := range all {
		name := fmt.Sprintf("q%03d", i)
		objects = append(objects, queue(name))
		good = append(good, health(name))
		bad = append(bad, health(name, func(h *v1alpha1.DeclaredHealth) { h.Value = "8" }))
	}
	w := newWorld(t, objects...)
	w.pods("a")
	w.say(good...)
	c := w.controller()
	for _, want := range []int{maxWrites, 2 * maxWrites, all, all} {
		w.poll(c)
		if w.writes != want {
			t.Errorf("%d writes, want %d", w.writes, want)
		}
		w.clock.Step(pollInterval)
	}
	w.clock.Step(detailInterval)
	fails("Timeout", "slow")(&bad[all-1])
	w.say(bad...)
	w.poll(c)
	if got := w.ready(fmt.Sprintf("q%03d", all-1)); got.Reason != "Timeout" {
		t.Errorf("what turned waits for values: %+v", got)
	}
}

func TestWriteFailures(t *testing.T) {
	w := newWorld(t, serving(), queue("q"), queue("r"))
	w.pods("a")
	w.say(health("q"), health("r"))
	w.failWrites = errors.New("etcd is down")
	c := w.controller()
	w.sync(c)
	if err := c.Poll(t.Context()); err == nil || !strings.Contains(err.Error(), "write the status of ExternalMetric shop/q: etcd is down") {
		t.Errorf("got %v", err)
	}
	if w.writes != 2 {
		t.Errorf("%d attempts: one failure stopped the others", w.writes)
	}
	w.failWrites = nil
	w.poll(c)
	if got := w.ready("q"); got.Status != metav1.ConditionTrue {
		t.Errorf("not written at the next poll: %+v", got)
	}
}

// A token that a pod does not accept is not used again.
func TestUnauthorized(t *testing.T) {
	w := newWorld(t, serving(), queue("q"))
	w.pods("a")
	w.errs["a"] = fmt.Errorf("ask /declared: %w", servingclient.ErrUnauthorized)
	w.poll(w.controller())
	if w.forgotten != 1 {
		t.Errorf("%d tokens forgotten", w.forgotten)
	}
}

// Custom metrics are told apart from external ones of the same name.
func TestKinds(t *testing.T) {
	custom := &v1alpha1.CustomMetric{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q", UID: types.UID("custom"), Generation: 1}}
	w := newWorld(t, serving(), queue("q"), custom)
	w.pods("a")
	w.say(health("q"), v1alpha1.DeclaredHealth{
		Kind: "CustomMetric", Namespace: "shop", Name: "q", UID: "custom", Generation: 1, Reason: "Timeout", Message: "slow",
	})
	w.poll(w.controller())
	if got := w.ready("q"); got.Status != metav1.ConditionTrue {
		t.Errorf("the ExternalMetric is %+v", got)
	}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(custom), custom); err != nil {
		t.Fatal(err)
	}
	if len(custom.Status.Conditions) != 1 || custom.Status.Conditions[0].Reason != "Timeout" {
		t.Errorf("the CustomMetric is %+v", custom.Status)
	}
}

// One request for each pod, and none without any metric.
func TestRequests(t *testing.T) {
	w := newWorld(t, serving(), queue("q"), queue("r"),
		&v1alpha1.CustomMetric{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s", UID: "s", Generation: 1}})
	w.pods("a", "b")
	counted := &countingAsker{world: w, asked: make(chan string, 100)}
	c := New(Options{Client: w.client, Pods: counted, Tokens: w, Directory: w.directory, Clock: w.clock})
	w.poll(c)
	if got := len(counted.asked); got != 2 {
		t.Errorf("%d requests, want one for each pod", got)
	}
	for _, object := range []client.Object{queue("q"), queue("r"), &v1alpha1.CustomMetric{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"}}} {
		if err := w.client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	w.poll(c)
	if got := len(counted.asked); got != 2 {
		t.Errorf("%d requests without any metric", got-2)
	}
}
