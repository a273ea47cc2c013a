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

// Limits bound the open watches of all hubs that share an Admission.
type Limits struct {
	// Connections in total, and PerUser.
	Connections, PerUser int
	// OpensPerSecond and OpensBurst bound how fast one user opens watches.
	OpensPerSecond float64
	OpensBurst     int
}

// The Retry-After of rejected watches, in seconds. It cannot be known when a watch ends;
// another replica may have room at once.
var (
	retryWhenFull     = retryAfter{least: 5, most: 15}
	retryWhenDraining = retryAfter{least: 1, most: 3}
)

// retryAfter is a range of seconds. client-go waits exactly as long as it is told, so clients
// that were rejected together get different values.
type retryAfter struct{ least, most int }

func (r retryAfter) pick(random func() float64) int {
	return min(r.most, r.least+int(random()*float64(r.most-r.least+1)))
}

// The values of the label limit.
const (
	limitOpenRate    = "openRate"
	limitConnections = "maxConnections"
	limitPerUser     = "maxConnectionsPerUser"
)

// Admission counts open watches against limits.
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

// pruneInterval is how often users without watches are removed.
const pruneInterval = time.Minute

// NewAdmission returns an Admission without open watches. random returns numbers in [0, 1) and
// is called by one goroutine at a time. Rejections are counted only if the metrics were
// registered before; their series start at zero, so that a rate includes the first.
func NewAdmission(c clock.PassiveClock, random func() float64, limits Limits) *Admission {
	for _, limit := range []string{limitOpenRate, limitConnections, limitPerUser} {
		rejectedTotal.WithLabelValues(limit)
	}
	return &Admission{clock: c, random: random, limits: limits, users: map[string]*user{}, pruned: c.Now()}
}

// Apply changes the limits. Open watches stay open.
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

// Admit counts a watch of a user until release is called, which must happen exactly once. Over
// a limit it returns a 429 that names the limit and has a Retry-After.
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
	// The rate is checked first: it also bounds clients that the other limits reject and that
	// retry at once.
	if !u.rate.AllowN(now, 1) {
		rejectedTotal.WithLabelValues(limitOpenRate).Inc()
		return nil, apierrors.NewTooManyRequests(
			fmt.Sprintf("user %q opens watches faster than %g a second (spec.watch.maxOpensPerSecondPerUser)", name, a.limits.OpensPerSecond), a.untilAllowed(u, now))
	}
	if a.open >= a.limits.Connections {
		rejectedTotal.WithLabelValues(limitConnections).Inc()
		return nil, apierrors.NewTooManyRequests(
			fmt.Sprintf("all of %d watches are in use (spec.watch.maxConnections)", a.limits.Connections), retryWhenFull.pick(a.random))
	}
	if u.open >= a.limits.PerUser {
		rejectedTotal.WithLabelValues(limitPerUser).Inc()
		return nil, apierrors.NewTooManyRequests(
			fmt.Sprintf("user %q has all of its %d watches in use (spec.watch.maxConnectionsPerUser)", name, a.limits.PerUser), retryWhenFull.pick(a.random))
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

// untilAllowed returns the seconds until the rate limiter allows one more watch.
func (a *Admission) untilAllowed(u *user, now time.Time) int {
	if a.limits.OpensPerSecond <= 0 {
		return retryWhenFull.pick(a.random)
	}
	return max(1, int(math.Ceil((1-u.rate.TokensAt(now))/a.limits.OpensPerSecond)))
}

// prune removes users without watches whose rate limiter is full again.
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

// Open returns the number of open watches.
func (a *Admission) Open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}
