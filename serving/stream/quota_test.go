// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestQuota(t *testing.T) {
	type step struct {
		user  string
		after time.Duration
		// refused is part of the message; "" where the watch is admitted.
		refused string
		retry   int
	}
	tests := map[string]struct {
		limits Limits
		steps  []step
	}{
		"total": {
			Limits{Connections: 2, PerUser: 2, OpensPerSecond: 10, OpensBurst: 10},
			[]step{{user: "a"}, {user: "b"}, {user: "c", refused: "maxWatches)", retry: 10}},
		},
		"per user": {
			Limits{Connections: 9, PerUser: 1, OpensPerSecond: 10, OpensBurst: 10},
			[]step{{user: "a"}, {user: "a", refused: "maxWatchesPerUser", retry: 10}, {user: "b"}},
		},
		"rate per user": {
			Limits{Connections: 9, PerUser: 9, OpensPerSecond: 0.5, OpensBurst: 2},
			[]step{
				{user: "a"}, {user: "a"}, {user: "a", refused: "faster than 0.5", retry: 2}, {user: "b"},
				{user: "a", after: time.Second, refused: "faster", retry: 1}, {user: "a", after: time.Second},
			},
		},
		"none": {
			Limits{Connections: 9, PerUser: 9},
			[]step{{user: "a", refused: "faster", retry: 10}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := clocktesting.NewFakePassiveClock(t0)
			a := NewQuota(c, func() float64 { return 0.5 }, test.limits)
			for i, s := range test.steps {
				c.SetTime(c.Now().Add(s.after))
				admitted, err := a.Acquire(&user.DefaultInfo{Name: s.user})
				if s.refused == "" {
					if err != nil || admitted == nil {
						t.Errorf("step %d: %v", i, err)
					}
					continue
				}
				seconds, _ := apierrors.SuggestsClientDelay(err)
				if !apierrors.IsTooManyRequests(err) || seconds != s.retry || !strings.Contains(err.Error(), s.refused) {
					t.Errorf("step %d: %v, after %d s; want %q after %d s", i, err, seconds, s.refused, s.retry)
				}
			}
		})
	}
}

// TestRetriesAreSpread: who was refused together does not come again together.
func TestRetriesAreSpread(t *testing.T) {
	draw := 0.0
	random := func() float64 { draw += 0.1; return draw - 0.1 }
	tests := map[string]struct {
		from retryAfter
		want []int
	}{
		"full":      {retryWhenFull, []int{5, 6, 7, 8, 9, 10, 11, 12, 13, 14}},
		"shut down": {retryWhenDraining, []int{1, 1, 1, 1, 2, 2, 2, 3, 3, 3}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			draw = 0
			var got []int
			for range 10 {
				got = append(got, test.from.pick(random))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestQuotaReturns: places come back, users are forgotten, and new limits hold
// for users that are known.
func TestQuotaReturns(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(t0)
	a := NewQuota(c, nil, Limits{Connections: 1, PerUser: 1, OpensPerSecond: 1, OpensBurst: 2})
	release, err := a.Acquire(&user.DefaultInfo{Name: "a"})
	if err != nil || a.Open() != 1 {
		t.Fatalf("%v, %d open", err, a.Open())
	}
	release()
	if release, err = a.Acquire(&user.DefaultInfo{Name: "a"}); err != nil {
		t.Fatalf("the place did not come back: %v", err)
	}
	release()
	a.Apply(Limits{Connections: 1, PerUser: 1, OpensPerSecond: 100, OpensBurst: 100})
	c.SetTime(c.Now().Add(time.Second))
	for range 50 {
		if release, err = a.Acquire(&user.DefaultInfo{Name: "a"}); err != nil {
			t.Fatalf("the new rate does not hold: %v", err)
		}
		release()
	}
	c.SetTime(c.Now().Add(2 * pruneInterval))
	if _, err := a.Acquire(&user.DefaultInfo{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if len(a.users) != 1 || a.Open() != 1 {
		t.Errorf("%d users known, %d watches open", len(a.users), a.Open())
	}
}
