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
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"
)

// Limits bound the open watches of all hubs that share an Admission.
type Limits struct {
	// Connections in total, and PerUser. A tenth of Connections is a reserve for system users.
	Connections, PerUser int
	// OpensPerSecond and OpensBurst bound how fast one user opens watches.
	OpensPerSecond float64
	OpensBurst     int
}

func (l Limits) reserve() int { return l.Connections / 10 }

func (l Limits) unreserved() int { return l.Connections - l.reserve() }

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

// Admission counts open watches against limits. Users share them by tenant: when all are in use,
// a tenant that has fewer than the largest takes the place of one of that one's, which ends.
// Otherwise whoever opens many ServiceAccounts' watches first would have all of them.
type Admission struct {
	clock  clock.PassiveClock
	random func() float64

	mu     sync.Mutex
	limits Limits
	users  map[string]*userWatches
	// tenants are those with watches; system may use the reserve.
	tenants        map[tenantKey]*tenant
	system, others pool
	// replacing are admitted over a limit and not open yet, ending were evicted and not released
	// yet; the latter are no longer counted otherwise.
	replacing, ending int
	pruned            time.Time
}

type userWatches struct {
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
	return &Admission{clock: c, random: random, limits: limits, users: map[string]*userWatches{}, tenants: map[tenantKey]*tenant{}, pruned: c.Now()}
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

// Admit counts a watch of a user until its Release. Over a limit it returns a 429 that names the
// limit and has a Retry-After.
func (a *Admission) Admit(info user.Info) (*Connection, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name, now := info.GetName(), a.clock.Now()
	a.prune(now)
	u := a.users[name]
	if u == nil {
		u = &userWatches{rate: rate.NewLimiter(rate.Limit(a.limits.OpensPerSecond), a.limits.OpensBurst)}
		a.users[name] = u
	}
	// The rate is checked first: it also bounds clients that the other limits reject and that
	// retry at once.
	if !u.rate.AllowN(now, 1) {
		rejectedTotal.WithLabelValues(limitOpenRate).Inc()
		return nil, apierrors.NewTooManyRequests(
			fmt.Sprintf("user %q opens watches faster than %g a second (spec.watch.maxOpensPerSecondPerUser)", name, a.limits.OpensPerSecond), a.untilAllowed(u, now))
	}
	if u.open >= a.limits.PerUser {
		rejectedTotal.WithLabelValues(limitPerUser).Inc()
		return nil, apierrors.NewTooManyRequests(
			fmt.Sprintf("user %q has all of its %d watches in use (spec.watch.maxConnectionsPerUser)", name, a.limits.PerUser), retryWhenFull.pick(a.random))
	}
	key := tenantOf(info)
	t := a.tenants[key]
	if t == nil {
		t = &tenant{tenantKey: key}
	}
	c := &Connection{admission: a, user: u, tenant: t}
	a.count(c)
	if !a.over(t) {
		return c, nil
	}
	if !a.mayReplace(t) {
		a.uncount(c)
		rejectedTotal.WithLabelValues(limitConnections).Inc()
		return nil, apierrors.NewTooManyRequests(a.whyFull(t), retryWhenFull.pick(a.random))
	}
	c.replaces = true
	a.replacing++
	return c, nil
}

// whyFull returns the message for a tenant that has to wait. Shares of others are not its business.
func (a *Admission) whyFull(t *tenant) string {
	all, which := a.limits.Connections, ""
	if !t.system && a.limits.reserve() > 0 {
		all, which = a.limits.unreserved(), " that are not reserved"
	}
	return fmt.Sprintf("all of %d watches%s are in use (spec.watch.maxConnections), %d of them by %s", all, which, t.open, t.tenantKey)
}

// untilAllowed returns the seconds until the rate limiter allows one more watch.
func (a *Admission) untilAllowed(u *userWatches, now time.Time) int {
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

// Open returns the number of open watches, with those that are ending.
func (a *Admission) Open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.system.open + a.others.open + a.ending
}
