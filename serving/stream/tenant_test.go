// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics/testutil"
	clocktesting "k8s.io/utils/clock/testing"
)

const (
	greedy = "system:serviceaccount:greedy:sa-"
	hpa    = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
)

// twenty admit 18 watches, and two more of system users.
var twenty = Limits{Connections: 20, PerUser: 20, OpensPerSecond: 1000, OpensBurst: 1000}

// tenants has watches of several users on one hub.
type tenants struct {
	*world
	admission *Admission
	verb      *WatchVerb
	watches   map[string][]*Watcher
}

func newTenants(t testing.TB, limits Limits) *tenants {
	w := &tenants{world: newWorld(t), watches: map[string][]*Watcher{}}
	w.admission = NewAdmission(w.clock, func() float64 { return 0.5 }, limits)
	w.verb = NewWatchVerb(w.admission, w.hub)
	w.pod("a", "one", "")
	w.store("a", "one", 1)
	return w
}

// open opens a watch that a reflector, or a client that knows no bookmarks, asks for.
func (w *tenants) open(name string, reflector bool) error {
	w.t.Helper()
	ctx := request.WithUser(quiet(w.t), &user.DefaultInfo{Name: name})
	watcher, err := w.verb.Open(ctx, w.hub, schema.GroupResource{}, func() (Request, error) {
		return Request{Metrics: w.metrics, Bookmarks: reflector, InitialEventsEnd: reflector, NewBookmark: bookmark}, nil
	})
	if err != nil {
		return err
	}
	w.t.Cleanup(watcher.Stop)
	w.watches[name] = append(w.watches[name], watcher)
	read(w.t, watcher)
	return nil
}

// openMany opens watches until one is refused, and returns how many were admitted.
func (w *tenants) openMany(name string, n int) int {
	w.t.Helper()
	for i := range n {
		if err := w.open(name, false); err != nil {
			if seconds, _ := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || seconds == 0 {
				w.t.Fatalf("want 429 with Retry-After: %v", err)
			}
			return i
		}
		w.left()
	}
	return n
}

// left stops the watches that the server has ended, as the watch handler does, and returns the
// number of the others by user.
func (w *tenants) left() map[string]int {
	w.t.Helper()
	w.pass(tick)
	left := map[string]int{}
	for name, watches := range w.watches {
		for _, watcher := range watches {
			if got := read(w.t, watcher); len(got) > 0 && got[len(got)-1] == "closed" {
				watcher.Stop()
			} else {
				left[name]++
			}
		}
	}
	return left
}

func TestTenantsShareWatches(t *testing.T) {
	type step struct {
		user     string
		n        int
		admitted int
	}
	tests := map[string]struct {
		limits Limits
		steps  []step
		left   map[string]int
	}{
		"ServiceAccounts of one namespace leave room for others": {
			steps: []step{
				{greedy + "1", 6, 6}, {greedy + "2", 6, 6}, {greedy + "3", 9, 6}, {greedy + "4", 1, 0},
				{"system:serviceaccount:shop:web", 1, 1},
			},
			left: map[string]int{greedy + "1": 6, greedy + "2": 6, greedy + "3": 5, "system:serviceaccount:shop:web": 1},
		},
		"a new tenant gets up to the share of the largest": {
			steps: []step{{greedy + "1", 18, 18}, {"jane", 18, 9}, {greedy + "2", 1, 0}},
			left:  map[string]int{greedy + "1": 9, "jane": 9},
		},
		"the largest loses": {
			steps: []step{{"jane", 8, 8}, {greedy + "1", 5, 5}, {greedy + "2", 5, 5}, {"joe", 1, 1}},
			left:  map[string]int{"jane": 8, greedy + "1": 5, greedy + "2": 4, "joe": 1},
		},
		"nobody loses to an equal": {
			limits: Limits{Connections: 2, PerUser: 2, OpensPerSecond: 10, OpensBurst: 10},
			steps:  []step{{"jane", 1, 1}, {"joe", 1, 1}, {"jim", 1, 0}},
			left:   map[string]int{"jane": 1, "joe": 1},
		},
		"a user is no ServiceAccount of a namespace of that name": {
			steps: []step{{greedy + "1", 18, 18}, {"greedy", 9, 9}},
			left:  map[string]int{greedy + "1": 9, "greedy": 9},
		},
		"system users have a reserve": {
			steps: []step{{greedy + "1", 20, 18}, {user.KubeControllerManager, 1, 1}, {hpa, 1, 1}},
			left:  map[string]int{greedy + "1": 18, user.KubeControllerManager: 1, hpa: 1},
		},
		"beyond the reserve system users share like others": {
			steps: []step{{greedy + "1", 18, 18}, {hpa, 20, 10}, {"jane", 1, 1}},
			left:  map[string]int{greedy + "1": 9, hpa: 10, "jane": 1},
		},
		"the reserve is not for nodes, strangers and other namespaces": {
			steps: []step{
				{greedy + "1", 2, 2}, {user.Anonymous, 16, 16}, {"system:node:n1", 1, 1},
				{"system:serviceaccount:kube-system-not:web", 1, 1}, {"system:serviceaccount:shop", 1, 1},
			},
			left: map[string]int{
				greedy + "1": 2, user.Anonymous: 13, "system:node:n1": 1, "system:serviceaccount:kube-system-not:web": 1, "system:serviceaccount:shop": 1,
			},
		},
		"nobody loses to a user who has all of his": {
			limits: Limits{Connections: 20, PerUser: 5, OpensPerSecond: 100, OpensBurst: 100},
			steps:  []step{{greedy + "1", 5, 5}, {greedy + "2", 5, 5}, {greedy + "3", 5, 5}, {"jane", 3, 3}, {"jane", 3, 2}},
			left:   map[string]int{greedy + "1": 5, greedy + "2": 5, greedy + "3": 3, "jane": 5},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			limits := test.limits
			if limits == (Limits{}) {
				limits = twenty
			}
			w := newTenants(t, limits)
			for _, s := range test.steps {
				if got := w.openMany(s.user, s.n); got != s.admitted {
					t.Errorf("%s opened %d watches of %d, want %d", s.user, got, s.n, s.admitted)
				}
			}
			left, total := w.left(), 0
			for _, n := range test.left {
				total += n
			}
			if diff := cmp.Diff(test.left, left); diff != "" {
				t.Errorf("open watches (-want +got):\n%s", diff)
			}
			if got := w.admission.Open(); got != total {
				t.Errorf("%d watches are counted, want %d", got, total)
			}
		})
	}
}

// A watch that makes room ends as any other that the server ends.
func TestEvictedWatch(t *testing.T) {
	for name, test := range map[string]struct {
		reflector bool
		want      []string
	}{
		"reflector": {true, []string{"ERROR 504 Timeout", "closed"}},
		"other":     {false, []string{"closed"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenants(t, Limits{Connections: 2, PerUser: 2, OpensPerSecond: 10, OpensBurst: 10})
			before, err := testutil.GetCounterMetricValue(evictedTotal)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{greedy + "1", greedy + "2", "jane"} {
				if err := w.open(name, test.reflector); err != nil {
					t.Fatal(err)
				}
			}
			after, err := testutil.GetCounterMetricValue(evictedTotal)
			if err != nil {
				t.Fatal(err)
			}
			if after-before != 1 {
				t.Errorf("counted %v evictions, want 1", after-before)
			}
			w.pass(tick)
			if diff := cmp.Diff(test.want, read(t, w.watches[greedy+"2"][0])); diff != "" {
				t.Errorf("the newest of the largest tenant (-want +got):\n%s", diff)
			}
		})
	}
}

// A request that fails takes no watch from others.
func TestNoEvictionForFailedRequest(t *testing.T) {
	w := newTenants(t, twenty)
	w.openMany(greedy+"1", 18)
	want := errors.New("no such metric")
	ctx := request.WithUser(quiet(t), &user.DefaultInfo{Name: "jane"})
	for range 50 {
		if _, err := w.verb.Open(ctx, w.hub, schema.GroupResource{}, func() (Request, error) { return Request{}, want }); !errors.Is(err, want) {
			t.Fatalf("error %v, want %v", err, want)
		}
	}
	if diff := cmp.Diff(map[string]int{greedy + "1": 18}, w.left()); diff != "" {
		t.Errorf("open watches (-want +got):\n%s", diff)
	}
}

// Where another watch ends by itself while one is being opened, none has to make room.
func TestNoEvictionWhereThereIsRoom(t *testing.T) {
	w := newTenants(t, twenty)
	w.openMany(greedy+"1", 18)
	ctx := request.WithUser(quiet(t), &user.DefaultInfo{Name: "jane"})
	watcher, err := w.verb.Open(ctx, w.hub, schema.GroupResource{}, func() (Request, error) {
		first := w.watches[greedy+"1"]
		first[0].Stop()
		w.watches[greedy+"1"] = first[1:]
		return Request{Metrics: w.metrics}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if diff := cmp.Diff(map[string]int{greedy + "1": 17}, w.left()); diff != "" {
		t.Errorf("open watches (-want +got):\n%s", diff)
	}
}

// Where all watches of the largest tenant are still being opened, the new one ends: the limit
// holds.
func TestNewcomerEndsWhereNothingElseCan(t *testing.T) {
	w := newTenants(t, twenty)
	for range 18 {
		opening, err := w.admission.Admit(&user.DefaultInfo{Name: greedy + "1"})
		if err != nil {
			t.Fatal(err)
		}
		defer opening.Release()
	}
	if err := w.open("jane", false); err != nil {
		t.Fatal(err)
	}
	if left := w.left(); len(left) != 0 || w.admission.Open() != 18 {
		t.Errorf("%d watches are open, among them %v", w.admission.Open(), left)
	}
}

// Clients that do not read cannot keep ended watches for long, nor make the server open many
// more than its limit.
func TestEvictedWatchThatIsNotRead(t *testing.T) {
	w := newTenants(t, twenty)
	w.openMany(greedy+"1", 18)
	w.store("a", "one", 2)
	for i, admitted := range []bool{true, true, false} {
		if err := w.open(fmt.Sprint("user-", i), false); (err == nil) != admitted {
			t.Errorf("new tenant %d: %v", i, err)
		}
	}
	if got := w.admission.Open(); got != 20 {
		t.Errorf("%d watches are open, want 20", got)
	}
	w.pass(20 * time.Second)
	if got := w.admission.Open(); got != 18 {
		t.Errorf("20 s later %d watches are open, want 18", got)
	}
	if err := w.open("user-3", false); err != nil {
		t.Error(err)
	}
}

// A lower limit ends no watch by itself, and the reserve is there at once.
func TestTenantsAfterLowerLimit(t *testing.T) {
	w := newTenants(t, twenty)
	w.openMany(greedy+"1", 18)
	lower := twenty
	lower.Connections = 10
	w.admission.Apply(lower)
	if diff := cmp.Diff(map[string]int{greedy + "1": 18}, w.left()); diff != "" {
		t.Errorf("open watches (-want +got):\n%s", diff)
	}
	if got := w.openMany(hpa, 1); got != 1 {
		t.Error("the reserve was refused")
	}
	if diff := cmp.Diff(map[string]int{greedy + "1": 17, hpa: 1}, w.left()); diff != "" {
		t.Errorf("open watches (-want +got):\n%s", diff)
	}
}

// The one who is refused learns the share of his tenant, and nothing of others.
func TestRefusedTenant(t *testing.T) {
	w := newTenants(t, twenty)
	w.openMany("jane", 9)
	w.openMany(greedy+"1", 9)
	for name, want := range map[string]string{
		greedy + "2": `all of 18 watches that are not reserved are in use (spec.watch.maxConnections), 9 of them by ServiceAccounts of namespace "greedy"`,
		"jane":       `all of 18 watches that are not reserved are in use (spec.watch.maxConnections), 9 of them by user "jane"`,
	} {
		if err := w.open(name, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestTenantOf(t *testing.T) {
	tests := map[string]struct {
		user user.DefaultInfo
		want tenantKey
	}{
		"ServiceAccount":                {user.DefaultInfo{Name: greedy + "1"}, tenantKey{namespace: "greedy"}},
		"ServiceAccount of kube-system": {user.DefaultInfo{Name: hpa}, tenantKey{namespace: "kube-system", system: true}},
		"malformed ServiceAccount":      {user.DefaultInfo{Name: "system:serviceaccount:kube-system"}, tenantKey{user: "system:serviceaccount:kube-system"}},
		"component":                     {user.DefaultInfo{Name: user.KubeControllerManager}, tenantKey{user: user.KubeControllerManager, system: true}},
		"anonymous":                     {user.DefaultInfo{Name: user.Anonymous}, tenantKey{user: user.Anonymous}},
		"node":                          {user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup}}, tenantKey{user: "system:node:n1"}},
		"bootstrap token":               {user.DefaultInfo{Name: "system:bootstrap:07401b"}, tenantKey{user: "system:bootstrap:07401b"}},
		"administrator":                 {user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}, tenantKey{user: "admin", system: true}},
		"other user":                    {user.DefaultInfo{Name: "jane"}, tenantKey{user: "jane"}},
		"no user":                       {user.DefaultInfo{}, tenantKey{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tenantOf(&test.user); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// However many clients of how many tenants open and leave at the same time, nothing is counted
// in the end, and at no time are more open than the limits allow.
func TestTenantsConcurrently(t *testing.T) {
	const clients, rounds = 16, 400
	w := newTenants(t, Limits{Connections: 30, PerUser: 30, OpensPerSecond: 1e6, OpensBurst: 1e6})
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			// Half of them are of one namespace.
			name := fmt.Sprint(greedy, i)
			switch {
			case i%8 == 0:
				name = hpa
			case i%2 == 0:
				name = fmt.Sprint("user-", i)
			}
			ctx := request.WithUser(quiet(t), &user.DefaultInfo{Name: name})
			var own []*Watcher
			for round := range rounds {
				watcher, err := w.verb.Open(ctx, w.hub, schema.GroupResource{}, func() (Request, error) {
					if round%7 == 0 {
						return Request{}, errUnencodable
					}
					return Request{Metrics: w.metrics}, nil
				})
				// The reserve is three: as many may be admitted over the limit, or be ending.
				if open := w.admission.Open(); open > 30+3 {
					t.Errorf("%d watches are open", open)
				}
				if err == nil {
					own = append(own, watcher)
				}
				if len(own) > 0 && (err != nil || len(own) == 5) {
					own[0].Stop()
					own = own[1:]
				}
			}
			for _, watcher := range own {
				watcher.Stop()
			}
		})
	}
	running.Wait()
	a := w.admission
	got := []int{a.Open(), len(a.tenants), len(a.system.tenants), len(a.others.tenants), a.system.open, a.others.open, a.replacing, a.ending}
	if diff := cmp.Diff(make([]int, len(got)), got); diff != "" {
		t.Errorf("still counted (-want +got):\n%s", diff)
	}
	for name, u := range a.users {
		if u.open != 0 {
			t.Errorf("%d watches of %s are still counted", u.open, name)
		}
	}
}

// BenchmarkAdmitWhenFull has a request refused, and one admitted that takes another's place, with
// a watch of each of nearly 10,000 tenants open.
func BenchmarkAdmitWhenFull(b *testing.B) {
	a := NewAdmission(clocktesting.NewFakePassiveClock(t0), func() float64 { return 0.5 },
		Limits{Connections: 10_000, PerUser: 10_000, OpensPerSecond: 1e9, OpensBurst: 1e9})
	admit := func(name string) *Connection {
		c, err := a.Admit(&user.DefaultInfo{Name: name})
		if err == nil {
			c.Opened(func() {})
		}
		return c
	}
	for i := range 8998 {
		admit(fmt.Sprint("user-", i))
	}
	b.Run("refused", func(b *testing.B) {
		last := admit("another")
		other := admit("yet another")
		b.ReportAllocs()
		for b.Loop() {
			if admit("another") != nil {
				b.Fatal("admitted")
			}
		}
		last.Release()
		other.Release()
	})
	b.Run("evicts", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			first, second := admit("large"), admit("large")
			third := admit("another")
			if third == nil || !second.evicted {
				b.Fatal("nothing was evicted")
			}
			for _, c := range []*Connection{first, second, third} {
				c.Release()
			}
		}
	})
}
