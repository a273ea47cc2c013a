// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"
)

const (
	greedy = "system:serviceaccount:greedy:sa-"
	hpa    = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
)

// hundred admits 90 watches, and ten more of system users.
var hundred = Limits{Connections: 100, PerUser: 100, OpensPerSecond: 1000, OpensBurst: 1000}

func quotaOf(limits Limits) *Quota {
	return NewQuota(clock.RealClock{}, func() float64 { return 0.5 }, limits)
}

// admitMany opens watches until one is refused, and returns how many were admitted. A * in the
// name is the number of the watch.
func admitMany(t testing.TB, a *Quota, name string, n int) int {
	t.Helper()
	for i := range n {
		if _, err := a.Acquire(&user.DefaultInfo{Name: strings.Replace(name, "*", fmt.Sprint(i), 1)}); err != nil {
			if seconds, _ := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || seconds != 10 {
				t.Fatalf("want 429 with Retry-After: %v", err)
			}
			return i
		}
	}
	return n
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
	}{
		"a hundred ServiceAccounts of one namespace are one tenant": {
			steps: []step{{greedy + "*", 100, 45}, {"system:serviceaccount:shop:web", 1, 1}},
		},
		"a single user has half": {steps: []step{{"jane", 100, 45}, {"joe", 1, 1}}},
		"what comes later shares what is left": {
			steps: []step{{"jane", 100, 45}, {greedy + "*", 100, 23}, {"jane", 1, 0}, {"joe", 100, 11}},
		},
		"a user is no ServiceAccount of a namespace of that name": {
			steps: []step{{greedy + "1", 100, 45}, {"greedy", 1, 1}},
		},
		"one user has no more than his own limit": {
			limits: Limits{Connections: 100, PerUser: 5, OpensPerSecond: 1000, OpensBurst: 1000},
			steps:  []step{{greedy + "1", 6, 5}, {greedy + "2", 6, 5}, {"jane", 6, 5}},
		},
		"system users have what is left, and a reserve": {
			steps: []step{{"user-*", 100, 90}, {user.KubeControllerManager, 4, 4}, {hpa, 100, 6}},
		},
		"others share what system users leave": {
			steps: []step{{hpa, 50, 50}, {"jane", 100, 25}, {hpa, 100, 25}, {"joe", 1, 0}},
		},
		"the reserve of system users does not count for others": {
			steps: []step{{hpa, 10, 10}, {"jane", 100, 45}},
		},
		"the reserve is not for nodes, strangers and other namespaces": {
			steps: []step{
				{"user-*", 100, 90}, {user.Anonymous, 1, 0}, {"system:node:n1", 1, 0},
				{"system:serviceaccount:kube-system-not:web", 1, 0}, {"system:serviceaccount:shop", 1, 0},
			},
		},
		"of few there is no reserve": {
			limits: Limits{Connections: 2, PerUser: 2, OpensPerSecond: 10, OpensBurst: 10},
			steps:  []step{{"jane", 2, 1}, {"joe", 1, 1}, {"jim", 1, 0}, {hpa, 1, 0}},
		},
		"a limit of one is for whoever comes first": {
			limits: Limits{Connections: 1, PerUser: 1, OpensPerSecond: 10, OpensBurst: 10},
			steps:  []step{{"jane", 1, 1}, {"joe", 1, 0}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			limits := test.limits
			if limits == (Limits{}) {
				limits = hundred
			}
			a, total := quotaOf(limits), 0
			for _, s := range test.steps {
				got := admitMany(t, a, s.user, s.n)
				if got != s.admitted {
					t.Errorf("%s opened %d watches of %d, want %d", s.user, got, s.n, s.admitted)
				}
				total += got
			}
			if got := a.Open(); got != total {
				t.Errorf("%d watches are counted, want %d", got, total)
			}
		})
	}
}

// What a lower limit no longer allows stays open, and no more is admitted until enough has ended.
func TestTenantsAfterLowerLimit(t *testing.T) {
	a := quotaOf(hundred)
	var open []func()
	for range 20 {
		release, err := a.Acquire(&user.DefaultInfo{Name: "jane"})
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, release)
	}
	lower := hundred
	lower.Connections = 10
	a.Apply(lower)
	if n := admitMany(t, a, "joe", 1) + admitMany(t, a, hpa, 1); n != 0 {
		t.Errorf("%d are admitted", n)
	}
	for _, release := range open[:11] {
		release()
	}
	if n := admitMany(t, a, "jane", 1) + admitMany(t, a, "joe", 1); n != 0 || a.Open() != 9 {
		t.Errorf("%d are admitted, of %d", n, a.Open())
	}
	if n := admitMany(t, a, hpa, 2); n != 1 {
		t.Errorf("%d system users are admitted, want 1", n)
	}
}

// The one who is refused learns the number of his tenant, and nothing of others.
func TestRefusedTenant(t *testing.T) {
	a := quotaOf(hundred)
	admitMany(t, a, "jane", 100)
	admitMany(t, a, greedy+"*", 100)
	admitMany(t, a, user.KubeControllerManager, 30)
	admitMany(t, a, hpa, 2)
	for name, want := range map[string]string{
		greedy + "2": `no more watches for ServiceAccounts of namespace "greedy", with 23 open: tenants share 90, and a single one may use half of them (spec.watch.maxWatches)`,
		"jane":       `no more watches for user "jane", with 45 open: tenants share 90, and a single one may use half of them (spec.watch.maxWatches)`,
		hpa:          `all of 100 watches are in use (spec.watch.maxWatches), 2 of them by ServiceAccounts of namespace "kube-system"`,
	} {
		if _, err := a.Acquire(&user.DefaultInfo{Name: name}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestTenantOf(t *testing.T) {
	tests := map[string]struct {
		user user.DefaultInfo
		want tenant
	}{
		"ServiceAccount":                {user.DefaultInfo{Name: greedy + "1"}, tenant{namespace: "greedy"}},
		"ServiceAccount of kube-system": {user.DefaultInfo{Name: hpa}, tenant{namespace: "kube-system", system: true}},
		"malformed ServiceAccount":      {user.DefaultInfo{Name: "system:serviceaccount:kube-system"}, tenant{user: "system:serviceaccount:kube-system"}},
		"component":                     {user.DefaultInfo{Name: user.KubeControllerManager}, tenant{user: user.KubeControllerManager, system: true}},
		"anonymous":                     {user.DefaultInfo{Name: user.Anonymous}, tenant{user: user.Anonymous}},
		"node":                          {user.DefaultInfo{Name: "system:node:n1", Groups: []string{user.NodesGroup}}, tenant{user: "system:node:n1"}},
		"bootstrap token":               {user.DefaultInfo{Name: "system:bootstrap:07401b"}, tenant{user: "system:bootstrap:07401b"}},
		"administrator":                 {user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}, tenant{user: "admin", system: true}},
		"other user":                    {user.DefaultInfo{Name: "jane"}, tenant{user: "jane"}},
		"no user":                       {user.DefaultInfo{}, tenant{}},
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
	w := newWorld(t)
	a := quotaOf(Limits{Connections: 30, PerUser: 30, OpensPerSecond: 1e6, OpensBurst: 1e6})
	verb := NewWatchVerb(a, w.hub)
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
				watcher, err := verb.Open(ctx, w.hub, schema.GroupResource{}, func() (Request, error) {
					if round%7 == 0 {
						return Request{}, errUnencodable
					}
					return Request{Metrics: w.metrics}, nil
				})
				if open := a.Open(); open > 30 {
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
	got := []int{a.Open(), len(a.tenants), a.system, a.others}
	if diff := cmp.Diff(make([]int, len(got)), got); diff != "" {
		t.Errorf("still counted (-want +got):\n%s", diff)
	}
	for name, u := range a.users {
		if u.open != 0 {
			t.Errorf("%d watches of %s are still counted", u.open, name)
		}
	}
}
