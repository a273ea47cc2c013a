// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

// Limits on open watches. They hold across hubs that share an Admission.
type Limits struct {
	// Connections in total, and PerUser.
	Connections, PerUser int
	// OpensPerSecond and OpensBurst bound how fast one user opens watches.
	OpensPerSecond float64
	OpensBurst     int
}

// What a client is told to wait, in seconds. When some watch ends and a place becomes
// free nobody can foresee; another server may be there already.
var (
	whenFull     = seconds{least: 5, most: 15}
	whenShutDown = seconds{least: 1, most: 3}
)

// seconds are picked from at random: client-go waits exactly as long as it is told,
// so those that were refused together would come again together.
type seconds struct{ least, most int }

func (s seconds) pick(random func() float64) int {
	return min(s.most, s.least+int(random()*float64(s.most-s.least+1)))
}

// The limits, as labels.
const (
	limitOpenRate    = "openRate"
	limitConnections = "maxConnections"
	limitPerUser     = "maxConnectionsPerUser"
)

// Admission counts watches against limits.
type Admission struct {
	clock  clock.PassiveClock
	random func() float64

	mu     sync.Mutex
	limits Limits
	open   int
	users  map[string]*user
	pruned time.Time
}

type user struct {
	open int
	rate *rate.Limiter
}

// pruneInterval is how often users are forgotten that have no watch.
const pruneInterval = time.Minute

// NewAdmission returns an admission under which nothing is open. random returns
// numbers in [0, 1) and is called by one goroutine at a time. What is refused is counted
// only where the metrics were registered before, from zero, so that a rate sees the first.
func NewAdmission(c clock.PassiveClock, random func() float64, limits Limits) *Admission {
	for _, limit := range []string{limitOpenRate, limitConnections, limitPerUser} {
		limitedTotal.WithLabelValues(limit)
	}
	return &Admission{clock: c, random: random, limits: limits, users: map[string]*user{}, pruned: c.Now()}
}

// Apply changes the limits. It closes nothing that is open.
func (a *Admission) Apply(limits Limits) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits = limits
	now := a.clock.Now()
	for _, u := range a.users {
		u.rate.SetLimitAt(now, rate.Limit(limits.OpensPerSecond))
		u.rate.SetBurstAt(now, limits.OpensBurst)
	}
}

// Admit takes a place for a user's watch, and returns what gives it back, which
// must be called once. Where there is none it returns a 429 that says which limit
// was met and, as Retry-After, when to try again.
func (a *Admission) Admit(name string) (release func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	a.prune(now)
	u := a.users[name]
	if u == nil {
		u = &user{rate: rate.NewLimiter(rate.Limit(a.limits.OpensPerSecond), a.limits.OpensBurst)}
		a.users[name] = u
	}
	// The rate goes first: a client that is refused for another reason and tries
	// again at once is what it is for.
	if !u.rate.AllowN(now, 1) {
		limitedTotal.WithLabelValues(limitOpenRate).Inc()
		return nil, apierrors.NewTooManyRequests(
			fmt.Sprintf("user %q opens watches faster than %g a second (spec.watch.maxOpensPerSecondPerUser)", name, a.limits.OpensPerSecond), a.wait(u, now))
	}
	if a.open >= a.limits.Connections {
		limitedTotal.WithLabelValues(limitConnections).Inc()
		return nil, apierrors.NewTooManyRequests(
			fmt.Sprintf("all of %d watches are in use (spec.watch.maxConnections)", a.limits.Connections), whenFull.pick(a.random))
	}
	if u.open >= a.limits.PerUser {
		limitedTotal.WithLabelValues(limitPerUser).Inc()
		return nil, apierrors.NewTooManyRequests(
			fmt.Sprintf("user %q has all of its %d watches in use (spec.watch.maxConnectionsPerUser)", name, a.limits.PerUser), whenFull.pick(a.random))
	}
	a.open++
	u.open++
	return func() { a.release(u) }, nil
}

func (a *Admission) release(u *user) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open--
	u.open--
}

// wait returns the seconds until the rate admits one more.
func (a *Admission) wait(u *user, now time.Time) int {
	if a.limits.OpensPerSecond <= 0 {
		return whenFull.pick(a.random)
	}
	return max(1, int(math.Ceil((1-u.rate.TokensAt(now))/a.limits.OpensPerSecond)))
}

// prune forgets users that have no watch and have not tried for a while.
func (a *Admission) prune(now time.Time) {
	if now.Sub(a.pruned) < pruneInterval {
		return
	}
	a.pruned = now
	for name, u := range a.users {
		if u.open == 0 && u.rate.TokensAt(now) >= float64(a.limits.OpensBurst) {
			delete(a.users, name)
		}
	}
}

// Open returns how many watches are open.
func (a *Admission) Open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}
