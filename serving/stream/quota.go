// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/internal/fairshare"
)

// Limits bound the open watches of all hubs that share a Quota.
type Limits struct {
	// Connections in total, and PerUser. A tenth of Connections is a reserve for system users.
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
	limitConnections = "maxWatches"
	limitPerUser     = "maxWatchesPerUser"
)

// Quota counts open watches against limits. Users share Connections by tenant (package
// fairshare): a namespace with many ServiceAccounts cannot keep others out.
type Quota struct {
	clock  clock.PassiveClock
	random func() float64

	mu     sync.Mutex
	limits Limits
	users  map[string]*userWatches
	// tenants has the open watches of each tenant that has any. system is the sum of those that
	// may use the reserve, others of those that may not.
	tenants        map[tenant]int
	system, others int
	pruned         time.Time
}

type userWatches struct {
	open int
	rate *rate.Limiter
}

// pruneInterval is how often users without watches are removed.
const pruneInterval = time.Minute

// NewQuota returns a Quota without open watches. random returns numbers in [0, 1) and
// is called by one goroutine at a time. Rejections are counted only if the metrics were
// registered before; their series start at zero, so that a rate includes the first.
func NewQuota(c clock.PassiveClock, random func() float64, limits Limits) *Quota {
	for _, limit := range []string{limitOpenRate, limitConnections, limitPerUser} {
		rejectedTotal.WithLabelValues(limit)
	}
	return &Quota{clock: c, random: random, limits: limits, users: map[string]*userWatches{}, tenants: map[tenant]int{}, pruned: c.Now()}
}

// Apply changes the limits. Open watches stay open.
func (q *Quota) Apply(limits Limits) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limits = limits
	now := q.clock.Now()
	for _, u := range q.users {
		u.rate.SetLimitAt(now, rate.Limit(limits.OpensPerSecond))
		u.rate.SetBurstAt(now, limits.OpensBurst)
	}
}

// Acquire counts a watch of a user until release is called, which must be exactly once. Over a limit
// it returns a 429 that names the limit and has a Retry-After.
func (q *Quota) Acquire(info user.Info) (release func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name, now := info.GetName(), q.clock.Now()
	q.prune(now)
	u := q.users[name]
	if u == nil {
		u = &userWatches{rate: rate.NewLimiter(rate.Limit(q.limits.OpensPerSecond), q.limits.OpensBurst)}
		q.users[name] = u
	}
	// The rate is checked first: it also bounds clients that the other limits reject and that
	// retry at once.
	if !u.rate.AllowN(now, 1) {
		rejectedTotal.WithLabelValues(limitOpenRate).Inc()
		return nil, apierrors.NewTooManyRequests(
			fmt.Sprintf("user %q opens watches faster than %g a second (spec.watch.maxOpensPerSecondPerUser)", name, q.limits.OpensPerSecond), q.untilAllowed(u, now))
	}
	if u.open >= q.limits.PerUser {
		rejectedTotal.WithLabelValues(limitPerUser).Inc()
		return nil, apierrors.NewTooManyRequests(
			fmt.Sprintf("user %q has all of its %d watches in use (spec.watch.maxWatchesPerUser)", name, q.limits.PerUser), retryWhenFull.pick(q.random))
	}
	t := tenantOf(info)
	if rejection := q.overShare(t); rejection != "" {
		rejectedTotal.WithLabelValues(limitConnections).Inc()
		return nil, apierrors.NewTooManyRequests(rejection, retryWhenFull.pick(q.random))
	}
	q.count(u, t, 1)
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.count(u, t, -1)
	}, nil
}

// overShare returns why a tenant may not open another watch, or "". System users have no share: they
// may use all that is left. The message does not contain what other tenants use.
func (q *Quota) overShare(t tenant) string {
	own, all, unreserved := q.tenants[t], q.limits.Connections, q.limits.Connections-q.limits.Connections/10
	switch {
	case t.system && q.system+q.others >= all:
		return fmt.Sprintf("all of %d watches are in use (spec.watch.maxWatches), %d of them by %s", all, own, t)
	case !t.system && !fairshare.Allows(own, q.others, 1, min(unreserved, all-q.system)):
		return fmt.Sprintf("no more watches for %s, with %d open: tenants share %d, and a single one may use half of them (spec.watch.maxWatches)", t, own, unreserved)
	}
	return ""
}

// count adds n to the open watches of a user and its tenant.
func (q *Quota) count(u *userWatches, t tenant, n int) {
	u.open += n
	q.tenants[t] += n
	if q.tenants[t] == 0 {
		delete(q.tenants, t)
	}
	if t.system {
		q.system += n
	} else {
		q.others += n
	}
}

// untilAllowed returns the seconds until the rate limiter allows one more watch.
func (q *Quota) untilAllowed(u *userWatches, now time.Time) int {
	if q.limits.OpensPerSecond <= 0 {
		return retryWhenFull.pick(q.random)
	}
	return max(1, int(math.Ceil((1-u.rate.TokensAt(now))/q.limits.OpensPerSecond)))
}

// prune removes users without watches whose rate limiter is full again.
func (q *Quota) prune(now time.Time) {
	if now.Sub(q.pruned) < pruneInterval {
		return
	}
	q.pruned = now
	for name, u := range q.users {
		if u.open == 0 && u.rate.TokensAt(now) >= float64(q.limits.OpensBurst) {
			delete(q.users, name)
		}
	}
}

// Open returns the number of open watches.
func (q *Quota) Open() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.system + q.others
}

// tenant is the namespace of ServiceAccounts, or another user by name.
type tenant struct {
	namespace, user string
	// system says that it may use the reserve.
	system bool
}

func (t tenant) String() string {
	if t.namespace != "" {
		return fmt.Sprintf("ServiceAccounts of namespace %q", t.namespace)
	}
	return fmt.Sprintf("user %q", t.user)
}

// tenantOf returns the tenant of a user. Whoever may create ServiceAccounts in a namespace can
// have any number of user names, but is one tenant.
//
// The reserve is for components of the control plane (system:<name>), for ServiceAccounts of
// kube-system and for the group system:masters. Of other names below system:, as of nodes and
// bootstrap tokens, there are many, and system:anonymous can be anybody.
func tenantOf(u user.Info) tenant {
	name := u.GetName()
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		return tenant{namespace: namespace, system: namespace == metav1.NamespaceSystem}
	}
	component, ok := strings.CutPrefix(name, "system:")
	ok = ok && name != user.Anonymous && !strings.Contains(component, ":")
	return tenant{user: name, system: ok || slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)}
}
