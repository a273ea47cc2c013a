// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcerules

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// ruleSet is written as people have it for prometheus-adapter.
func ruleSet() *v1alpha1.ResourceRules {
	resources := v1alpha1.RuleResources{Overrides: map[string]v1alpha1.RuleResource{
		"namespace": {Resource: "namespace"}, "pod": {Resource: "pod"}, "node": {Resource: "node"},
	}}
	return &v1alpha1.ResourceRules{
		Window: "5m",
		CPU: v1alpha1.ResourceRule{
			ContainerQuery: `sum(rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>,container!=""}[5m])) by (<<.GroupBy>>)`,
			NodeQuery:      `sum(rate(node_cpu_seconds_total{mode!="idle",<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)`,
			Resources:      resources, ContainerLabel: "container",
		},
		Memory: v1alpha1.ResourceRule{
			ContainerQuery: `sum(container_memory_working_set_bytes{<<.LabelMatchers>>,container!=""}) by (<<.GroupBy>>)`,
			NodeQuery:      `sum(node_memory_used_bytes{<<.LabelMatchers>>}) by (<<.GroupBy>>)`,
			Resources:      resources, ContainerLabel: "container",
		},
	}
}

func compile(t *testing.T, set *v1alpha1.ResourceRules) *rules.ResourceQueries {
	t.Helper()
	q, health := rules.CompileResourceRules(set, []v1alpha1.SourceSpec{{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: "http://x"}}})
	if q == nil {
		t.Fatalf("the rules do not compile: %+v", health)
	}
	return q
}

// server answers by what the expression is about.
type server struct {
	mu      sync.Mutex
	samples map[string][]query.Sample
	fails   map[string]error
	asked   []time.Time
	// hangs has queries wait until they are given up.
	hangs bool
}

var subjects = []string{"container_cpu", "container_memory", "node_cpu", "node_memory"}

func (s *server) Evaluate(ctx context.Context, q query.Query, at time.Time) (*query.Result, error) {
	expression := q.Expression
	s.mu.Lock()
	if s.hangs {
		s.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	defer s.mu.Unlock()
	for _, subject := range subjects {
		if !strings.Contains(expression, subject) {
			continue
		}
		s.asked = append(s.asked, at)
		if err := s.fails[subject]; err != nil {
			return nil, err
		}
		a := &query.Result{Time: at}
		for _, sample := range s.samples[subject] {
			sample.Time = at
			a.Samples = append(a.Samples, sample)
		}
		return a, nil
	}
	return nil, errors.New("nobody asks for " + expression)
}

func of(v float64, pairs ...string) query.Sample {
	s := query.Sample{Value: v, Labels: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		s.Labels[pairs[i]] = pairs[i+1]
	}
	return s
}

func in(v float64, pod, name string) query.Sample {
	return of(v, "namespace", "a", "pod", pod, "container", name)
}

// run has f run beside a poller with a store that knows some objects, in a bubble.
func run(t *testing.T, f func(*testing.T, *server, *Poller, *samplestore.Store)) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{samples: map[string][]query.Sample{}, fails: map[string]error{}}
		store := samplestore.NewStore(clock.RealClock{}, 90*time.Second)
		for _, name := range []string{"n1", "n2"} {
			store.Nodes.SetMeta(samplestore.Key{Name: name}, &samplestore.Meta{UID: types.UID(name)})
		}
		for _, name := range []string{"one", "two", "three"} {
			store.Pods.SetMeta(samplestore.Key{Namespace: "a", Name: name}, &samplestore.Meta{UID: types.UID(name)})
		}
		poller := New(store, clock.RealClock{}, func(name string) (query.Source, bool) { return s, name == "main" })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			poller.Run(ctx)
		}()
		f(t, s, poller, store)
		cancel()
		<-done
	})
}

func usages(t *samplestore.Collection, k samplestore.Key) []samplestore.Usage {
	if o := t.Get(k); o != nil {
		return o.Point.Usages
	}
	return nil
}

func TestRules(t *testing.T) {
	nan := math.NaN()
	tests := map[string]struct {
		samples map[string][]query.Sample
		fails   map[string]error
		// pods are the usages of pod one and two, and node those of n1.
		one, two, node []samplestore.Usage
		problems       []v1alpha1.RuleHealth
	}{
		"complete": {
			samples: map[string][]query.Sample{
				"container_cpu":    {in(0.25, "one", "web"), in(0, "one", "agent"), in(1.5, "two", "web"), in(9, "gone", "web")},
				"container_memory": {in(1024, "one", "web"), in(2048, "one", "agent"), in(4096, "two", "web"), in(9, "gone", "web")},
				"node_cpu":         {of(2.5, "node", "n1"), of(9, "node", "10.0.0.1:9100")}, "node_memory": {of(8<<30, "node", "n1")},
			},
			one:  []samplestore.Usage{{Name: "agent", CPU: 0, Memory: 2048}, {Name: "web", CPU: 250000000, Memory: 1024}},
			two:  []samplestore.Usage{{Name: "web", CPU: 1500000000, Memory: 4096}},
			node: []samplestore.Usage{{CPU: 2500000000, Memory: 8 << 30}},
		},
		"a container that has ended, and one that has begun": {
			samples: map[string][]query.Sample{
				"container_cpu":    {in(0.25, "one", "web"), in(0.5, "one", "init"), in(1, "two", "web")},
				"container_memory": {in(1024, "one", "web"), in(4096, "two", "web"), in(5, "two", "sidecar")},
				"node_cpu":         {of(1, "node", "n1")}, "node_memory": {of(2, "node", "n1")},
			},
			one:  []samplestore.Usage{{Name: "web", CPU: 250000000, Memory: 1024}},
			node: []samplestore.Usage{{CPU: 1000000000, Memory: 2}},
		},
		"zeros": {
			samples: map[string][]query.Sample{
				"container_cpu":    {in(0.25, "one", "web"), in(0, "one", "ended"), in(1, "two", "web")},
				"container_memory": {in(1024, "one", "web"), in(0, "one", "ended"), in(0, "two", "web")},
				"node_cpu":         {of(1, "node", "n1")}, "node_memory": {of(2, "node", "n1")},
			},
			one:  []samplestore.Usage{{Name: "web", CPU: 250000000, Memory: 1024}},
			node: []samplestore.Usage{{CPU: 1000000000, Memory: 2}},
			problems: []v1alpha1.RuleHealth{
				{Path: "spec.resourceMetrics.rules.memory.containerQuery", State: v1alpha1.RuleWarning, Reason: ReasonUnusableFigures, Message: "pods that use CPU while all their containers have 0 bytes: 1"},
			},
		},
		"a sleeping container without memory, and CPU below zero by rounding": {
			samples: map[string][]query.Sample{
				"container_cpu":    {in(0.25, "one", "web"), in(0.0005, "one", "logrotate"), in(-0.003, "one", "agent"), in(0.1, "two", "web"), in(0.1, "two", "agent")},
				"container_memory": {in(1024, "one", "web"), in(0, "one", "logrotate"), in(512, "one", "agent"), in(0, "two", "web"), in(0, "two", "agent")},
				"node_cpu":         {of(-0.003, "node", "n1")}, "node_memory": {of(2, "node", "n1")},
			},
			one:  []samplestore.Usage{{Name: "agent", Memory: 512}, {Name: "logrotate", CPU: 500000}, {Name: "web", CPU: 250000000, Memory: 1024}},
			node: []samplestore.Usage{{Memory: 2}},
			problems: []v1alpha1.RuleHealth{
				{Path: "spec.resourceMetrics.rules.memory.containerQuery", State: v1alpha1.RuleWarning, Reason: ReasonUnusableFigures, Message: "pods that use CPU while all their containers have 0 bytes: 1"},
			},
		},
		"CPU further below zero": {
			samples: map[string][]query.Sample{
				"container_cpu":    {in(-0.011, "one", "web"), in(-0.003, "two", "ended"), in(1, "two", "web")},
				"container_memory": {in(1024, "one", "web"), in(0, "two", "ended"), in(4096, "two", "web")},
				"node_cpu":         {of(1, "node", "n1")}, "node_memory": {of(2, "node", "n1")},
			},
			two:  []samplestore.Usage{{Name: "web", CPU: 1000000000, Memory: 4096}},
			node: []samplestore.Usage{{CPU: 1000000000, Memory: 2}},
			problems: []v1alpha1.RuleHealth{
				{Path: "spec.resourceMetrics.rules.cpu.containerQuery", State: v1alpha1.RuleWarning, Reason: ReasonUnusableFigures, Message: "1 series cannot be used, such as that of container web of pod a/one: -0.011 cores is not possible"},
			},
		},
		"no numbers, impossible ones and two for one": {
			samples: map[string][]query.Sample{
				"container_cpu":    {in(nan, "one", "web"), in(1, "two", "web"), in(1, "two", "web")},
				"container_memory": {in(1024, "one", "web"), in(1, "two", "web")},
				"node_cpu":         {of(-1, "node", "n1")}, "node_memory": {of(math.Inf(1), "node", "n1")},
			},
			problems: []v1alpha1.RuleHealth{
				{Path: "spec.resourceMetrics.rules.cpu.containerQuery", State: v1alpha1.RuleWarning, Reason: ReasonUnusableFigures, Message: "2 series cannot be used, such as that of container web of pod a/two: there is more than one: sum them in the query, by the labels of .GroupBy"},
				{Path: "spec.resourceMetrics.rules.cpu.nodeQuery", State: v1alpha1.RuleWarning, Reason: ReasonUnusableFigures, Message: "1 series cannot be used, such as that of node n1: -1 cores is not possible"},
				{Path: "spec.resourceMetrics.rules.memory.nodeQuery", State: v1alpha1.RuleWarning, Reason: ReasonUnusableFigures, Message: "1 series cannot be used, such as that of node n1: +Inf bytes is not possible"},
			},
		},
		"the pod as a whole, and its pause container": {
			samples: map[string][]query.Sample{
				"container_cpu":    {in(0.25, "one", "web"), in(9, "one", ""), in(9, "one", "POD")},
				"container_memory": {in(1024, "one", "web"), in(9, "one", ""), in(9, "one", "POD")},
				"node_cpu":         {of(1, "node", "n1")}, "node_memory": {of(2, "node", "n1")},
			},
			one:  []samplestore.Usage{{Name: "web", CPU: 250000000, Memory: 1024}},
			node: []samplestore.Usage{{CPU: 1000000000, Memory: 2}},
		},
		"wrong labels, nothing, and a failure": {
			samples: map[string][]query.Sample{
				"container_memory": {of(1, "kubernetes_namespace", "a", "pod", "one", "container", "web")},
				"node_cpu":         {of(1, "node", "10.0.0.1:9100"+strings.Repeat("x", 1<<20))},
				"node_memory":      {},
			},
			fails: map[string]error{"container_cpu": &query.Failure{Source: "main", Reason: query.ReasonTimeout, Message: "too slow"}},
			problems: []v1alpha1.RuleHealth{
				{Path: "spec.resourceMetrics.rules.cpu.containerQuery", State: v1alpha1.RuleFailing, Reason: "Timeout", Message: `source "main": Timeout: too slow`},
				{Path: "spec.resourceMetrics.rules.cpu.nodeQuery", State: v1alpha1.RuleFailing, Reason: ReasonNoFigures, Message: `no value of the label node is a node's name, such as "10.0.0.1:9100` + strings.Repeat("x", 84) + `…": choose the label that holds it in resources.overrides`},
				{Path: "spec.resourceMetrics.rules.memory.containerQuery", State: v1alpha1.RuleFailing, Reason: ReasonNoFigures, Message: "the source has no series for it whose labels namespace, pod and container name a container of a pod of this cluster"},
				{Path: "spec.resourceMetrics.rules.memory.nodeQuery", State: v1alpha1.RuleFailing, Reason: ReasonNoFigures, Message: `the source has no series for it: `},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, s *server, poller *Poller, store *samplestore.Store) {
				s.samples, s.fails = tc.samples, tc.fails
				poller.Apply(compile(t, ruleSet()))
				synctest.Wait()
				got := map[string][]samplestore.Usage{
					"one":  usages(store.Pods, samplestore.Key{Namespace: "a", Name: "one"}),
					"two":  usages(store.Pods, samplestore.Key{Namespace: "a", Name: "two"}),
					"node": usages(store.Nodes, samplestore.Key{Name: "n1"}),
				}
				if diff := cmp.Diff(map[string][]samplestore.Usage{"one": tc.one, "two": tc.two, "node": tc.node}, got); diff != "" {
					t.Errorf("usages (-want +got):\n%s", diff)
				}
				if o := store.Pods.Get(samplestore.Key{Namespace: "a", Name: "one"}); o != nil && (o.Point.Window != 5*time.Minute || o.Point.Time != samplestore.TimeOf(s.asked[0]) || o.Point.Node != "") {
					t.Errorf("point %+v", o.Point)
				}
				report := poller.Report()
				prefix := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Message" },
					cmp.Comparer(func(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }))
				if diff := cmp.Diff(tc.problems, report.Problems, prefix, cmpopts.EquateEmpty()); diff != "" || !report.Done {
					t.Errorf("report %+v (-want +got):\n%s", report, diff)
				}
			})
		})
	}
}

// Points come each interval, at instants that are the same on every replica.
func TestInterval(t *testing.T) {
	run(t, func(t *testing.T, s *server, poller *Poller, _ *samplestore.Store) {
		poller.Apply(compile(t, ruleSet()))
		time.Sleep(firstRetry + time.Second)
		s.mu.Lock()
		// At once, after firstRetry, and in the slot if it lies between.
		if n := len(s.asked); n != 8 && n != 12 {
			t.Errorf("asked %d times before there were figures", len(s.asked))
		}
		s.samples = map[string][]query.Sample{
			"container_cpu": {in(1, "one", "web")}, "container_memory": {in(1, "one", "web")},
			"node_cpu": {of(1, "node", "n1")}, "node_memory": {of(1, "node", "n1")},
		}
		s.mu.Unlock()
		time.Sleep(20 * time.Second)
		s.mu.Lock()
		s.asked = nil
		s.mu.Unlock()
		time.Sleep(time.Minute)
		s.mu.Lock()
		instants := map[time.Time]int{}
		for _, at := range s.asked {
			instants[at]++
		}
		s.mu.Unlock()
		if len(instants) != 4 {
			t.Errorf("evaluated at %v", instants)
		}
		for at, n := range instants {
			if n != 4 || at.Sub(at.Truncate(15*time.Second)) != slotsOf(compile(t, ruleSet())).Next(at.Add(-time.Second)).Sub(at.Truncate(15*time.Second)) {
				t.Errorf("%d queries at %s", n, at)
			}
		}
		poller.Apply(nil)
		synctest.Wait()
		s.mu.Lock()
		s.asked = nil
		s.mu.Unlock()
		time.Sleep(time.Hour)
		if len(s.asked) != 0 {
			t.Errorf("asked %d times without rules", len(s.asked))
		}
	})
}

// lateClock has timers that are late, as all are.
type lateClock struct {
	clock.RealClock
	late time.Duration
}

func (c lateClock) NewTimer(d time.Duration) clock.Timer {
	return &lateTimer{Timer: c.RealClock.NewTimer(d), late: c.late}
}

type lateTimer struct {
	clock.Timer
	late time.Duration
}

func (l *lateTimer) Reset(d time.Duration) bool { return l.Timer.Reset(d + l.late) }

// Replicas whose timers are late, each by something else, give points of the same instants.
// A source that limits its clients is not asked again before the time of its Retry-After, even if the
// interval and the first retry are shorter.
func TestRetryAfter(t *testing.T) {
	run(t, func(t *testing.T, s *server, poller *Poller, _ *samplestore.Store) {
		s.fails["container_cpu"] = &query.Failure{Source: "main", Reason: query.ReasonRateLimited, RetryAfter: 40 * time.Second}
		poller.Apply(compile(t, ruleSet()))
		synctest.Wait()
		polls := func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.asked) / len(subjects)
		}
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 1}, {39 * time.Second, 1}, {16 * time.Second, 2}} {
			time.Sleep(step.after)
			synctest.Wait()
			if got := polls(); got != step.want {
				t.Errorf("%d polls %s later, want %d", got, step.after, step.want)
			}
		}
	})
}

func TestLateTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		instants := func(late time.Duration) []time.Time {
			s := &server{fails: map[string]error{}, samples: map[string][]query.Sample{
				"container_cpu": {in(1, "one", "web")}, "container_memory": {in(1, "one", "web")},
				"node_cpu": {of(1, "node", "n1")}, "node_memory": {of(1, "node", "n1")},
			}}
			store := samplestore.NewStore(clock.RealClock{}, 90*time.Second)
			store.Nodes.SetMeta(samplestore.Key{Name: "n1"}, &samplestore.Meta{UID: "n1"})
			store.Pods.SetMeta(samplestore.Key{Namespace: "a", Name: "one"}, &samplestore.Meta{UID: "one"})
			poller := New(store, lateClock{late: late}, func(string) (query.Source, bool) { return s, true })
			poller.Apply(compile(t, ruleSet()))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go poller.Run(ctx)
			// Not at a slot: what is evaluated at once is of now.
			time.Sleep(time.Minute + time.Second - time.Duration(time.Now().UnixNano())%time.Minute)
			cancel()
			synctest.Wait()
			var at []time.Time
			for _, asked := range s.asked {
				at = append(at, asked.Add(-asked.Truncate(15*time.Second).Sub(time.Unix(0, 0))))
			}
			return slices.Compact(at[4:])
		}
		three, eleven := instants(3*time.Millisecond), instants(11*time.Millisecond)
		if len(three) == 0 || !three[0].Equal(eleven[0]) || len(three) != 1 || len(eleven) != 1 {
			t.Errorf("places in the interval: %v and %v", three, eleven)
		}
	})
}

// A round that waits for a source ends when the queries are others.
func TestApplyDuringAPoll(t *testing.T) {
	run(t, func(t *testing.T, s *server, poller *Poller, _ *samplestore.Store) {
		s.hangs = true
		poller.Apply(compile(t, ruleSet()))
		synctest.Wait()
		s.mu.Lock()
		s.hangs, s.asked = false, nil
		s.mu.Unlock()
		changed := ruleSet()
		changed.Window = "2m"
		poller.Apply(compile(t, changed))
		synctest.Wait()
		if report := poller.Report(); len(s.asked) != 4 || !report.Done {
			t.Errorf("asked %d times, report %+v", len(s.asked), report)
		}
	})
}

// From kubelets to rules and back there is an answer at all times.
func TestSwitch(t *testing.T) {
	run(t, func(t *testing.T, s *server, poller *Poller, store *samplestore.Store) {
		key := samplestore.Key{Namespace: "a", Name: "one"}
		kubelet := func(cpu uint64) {
			now := samplestore.TimeOf(time.Now())
			store.Pods.Publish([]samplestore.Update{{Key: key, Point: &samplestore.Point{
				Time: now, Newest: now, Node: "n1", Started: now - samplestore.Time(time.Hour.Milliseconds()), Usages: []samplestore.Usage{{Name: "web", CPU: cpu, Memory: 1}},
			}}})
		}
		kubelet(1)
		time.Sleep(10 * time.Second)
		s.samples = map[string][]query.Sample{"container_cpu": {in(2e-9, "one", "web")}, "container_memory": {in(1, "one", "web")}}
		poller.Apply(compile(t, ruleSet()))
		synctest.Wait()
		if got := usages(store.Pods, key); len(got) != 1 || got[0].CPU != 2 {
			t.Errorf("with rules: %v", got)
		}
		poller.Apply(nil)
		time.Sleep(time.Minute)
		if got := usages(store.Pods, key); len(got) != 1 || got[0].CPU != 2 {
			t.Errorf("between: %v", got)
		}
		kubelet(3)
		if got := usages(store.Pods, key); len(got) != 1 || got[0].CPU != 3 {
			t.Errorf("with kubelets: %v", got)
		}
	})
}

// A query that drops the namespace is evaluated for each.
func TestByNamespace(t *testing.T) {
	run(t, func(t *testing.T, s *server, poller *Poller, store *samplestore.Store) {
		store.Pods.SetMeta(samplestore.Key{Namespace: "b", Name: "one"}, &samplestore.Meta{UID: "b"})
		set := ruleSet()
		set.CPU.ContainerQuery = `sum(rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>}[5m])) by (pod, container)`
		set.Memory.ContainerQuery = `sum(container_memory_working_set_bytes{<<.LabelMatchers>>}) by (pod, container)`
		s.samples = map[string][]query.Sample{
			"container_cpu":    {of(1, "pod", "one", "container", "web")},
			"container_memory": {of(1, "pod", "one", "container", "web")},
		}
		q := compile(t, set)
		if q.CPU.Containers != "" {
			t.Fatalf("asked at once: %s", q.CPU.Containers)
		}
		poller.Apply(q)
		synctest.Wait()
		for _, namespace := range []string{"a", "b"} {
			if got := usages(store.Pods, samplestore.Key{Namespace: namespace, Name: "one"}); len(got) != 1 {
				t.Errorf("namespace %s: %v", namespace, got)
			}
		}
		if got := poller.Report(); got.Pods != 2 || got.Newest.IsZero() {
			t.Errorf("report %+v", got)
		}
	})
}

// TestPodsOnly: without queries of nodes pods have figures, each interval and no sooner.
func TestPodsOnly(t *testing.T) {
	run(t, func(t *testing.T, s *server, poller *Poller, store *samplestore.Store) {
		s.samples["container_cpu"] = []query.Sample{in(0.25, "one", "web")}
		s.samples["container_memory"] = []query.Sample{in(1024, "one", "web")}
		s.fails["node_cpu"] = errors.New("nobody is to ask")
		s.fails["node_memory"] = s.fails["node_cpu"]
		set := ruleSet()
		set.Interval = "1m"
		set.Memory.NodeQuery = ""
		poller.Apply(compile(t, set))
		synctest.Wait()
		if r := poller.Report(); !r.Complete() || r.Pods != 1 || r.Nodes != 0 || len(r.Problems) != 0 {
			t.Errorf("report %+v", r)
		}
		if diff := cmp.Diff([]samplestore.Usage{{Name: "web", CPU: 250000000, Memory: 1024}}, usages(store.Pods, samplestore.Key{Namespace: "a", Name: "one"})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.asked); n > 2*11 {
			t.Errorf("asked %d times in ten minutes", n)
		}
	})
}

// TestIncompleteForEver: rules that never give figures of nodes, as their label is not
// theirs, cost no more than those that do, and points are of the slots.
func TestIncompleteForEver(t *testing.T) {
	run(t, func(t *testing.T, s *server, f *Poller, _ *samplestore.Store) {
		s.samples["container_cpu"] = []query.Sample{in(0.25, "one", "web")}
		s.samples["container_memory"] = []query.Sample{in(1024, "one", "web")}
		s.samples["node_cpu"] = []query.Sample{of(1, "node", "unknown")}
		s.samples["node_memory"] = []query.Sample{of(1, "node", "unknown")}
		q := compile(t, ruleSet())
		q.Interval = time.Minute
		f.Apply(q)
		time.Sleep(5 * time.Minute)
		s.mu.Lock()
		s.asked = nil
		s.mu.Unlock()
		time.Sleep(10 * time.Minute)
		s.mu.Lock()
		defer s.mu.Unlock()
		if rounds := len(s.asked) / 4; rounds != 10 {
			t.Errorf("%d rounds in ten intervals", rounds)
		}
		for _, at := range s.asked {
			if slot := slotsOf(q).Start(at); !slot.Equal(at) {
				t.Errorf("asked for %s, and the slot is of %s", at, slot)
			}
		}
	})
}
