// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package consumers

import (
	"cmp"
	"hash/maphash"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	// maxUserAgent and maxUser bound names, in bytes. The user name of a
	// ServiceAccount has up to 339 bytes.
	maxUserAgent = 64
	maxUser      = 384
	// noName stands for a missing user agent or user name.
	noName = "(none)"
	// maxOthers bounds the clients that are counted beyond v1alpha1.MaxConsumers.
	maxOthers = 1000
)

// usageLog holds the last day on which each client used a version. It is safe for
// concurrent use.
type usageLog struct {
	// known holds the days of up to v1alpha1.MaxConsumers clients. The map is
	// replaced, never changed, so that reading it takes no lock.
	known atomic.Pointer[map[client]*atomic.Int32]

	mu   sync.Mutex
	seed maphash.Seed
	// full is the last day on which all of known were clients of that day, so that
	// no other client can be added on it.
	full day
	// others holds the days of clients that are not in known, by hash; pruned is the
	// last day on which it was pruned.
	others map[uint64]day
	pruned day
}

func newUsageLog() *usageLog {
	l := &usageLog{seed: maphash.MakeSeed(), others: map[uint64]day{}}
	l.known.Store(&map[client]*atomic.Int32{})
	return l
}

// record records that a client, as returned by newClient, used the version today.
func (l *usageLog) record(c client, today day) {
	if l.update(c, today) {
		return
	}
	// Clients are stored with printable names.
	c = client{userAgent: printable(c.userAgent), user: printable(c.user)}
	if l.update(c, today) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.others[l.hash(c)] == today {
		// There was no room today, and there will be none until the day ends.
		return
	}
	if !l.update(c, today) && !l.add(c, today) {
		l.countOther(c, today)
	}
}

// update sets the day of a known client, and returns false for others.
func (l *usageLog) update(c client, today day) bool {
	last := (*l.known.Load())[c]
	if last == nil {
		return false
	}
	// Written once a day only, since a write invalidates other CPUs' cache lines.
	if day(last.Load()) != today {
		last.Store(int32(today))
	}
	return true
}

// add adds a client to known, if necessary in place of one that was not seen today.
// Clients of today are never replaced, so a client with ever new names cannot hide
// others. The caller holds l.mu.
func (l *usageLog) add(c client, today day) bool {
	if l.full == today {
		return false
	}
	known := maps.Clone(*l.known.Load())
	maps.DeleteFunc(known, func(_ client, last *atomic.Int32) bool { return !isRecent(day(last.Load()), today) })
	if len(known) >= v1alpha1.MaxConsumers {
		var oldest client
		oldestDay := today
		for k, last := range known {
			if d := day(last.Load()); d < oldestDay {
				oldest, oldestDay = k, d
			}
		}
		if oldestDay == today {
			l.full = today
			return false
		}
		l.countOther(oldest, oldestDay)
		delete(known, oldest)
	}
	last := &atomic.Int32{}
	last.Store(int32(today))
	// Cloned, so that it does not keep the request's headers alive.
	known[client{userAgent: strings.Clone(c.userAgent), user: strings.Clone(c.user)}] = last
	delete(l.others, l.hash(c))
	l.known.Store(&known)
	return true
}

// countOther counts a client that is not in known, unless there are maxOthers. The
// caller holds l.mu.
func (l *usageLog) countOther(c client, on day) {
	hash := l.hash(c)
	if _, ok := l.others[hash]; !ok && len(l.others) >= maxOthers {
		if l.pruned != on {
			l.pruned = on
			l.pruneOthers(on)
		}
		if len(l.others) >= maxOthers {
			return
		}
	}
	l.others[hash] = on
}

func (l *usageLog) pruneOthers(today day) {
	maps.DeleteFunc(l.others, func(_ uint64, d day) bool { return !isRecent(d, today) })
}

func (l *usageLog) hash(c client) uint64 { return maphash.Comparable(l.seed, c) }

// recent returns the clients of today and yesterday as consumers of the named
// version, and the number of others.
func (l *usageLog) recent(version string, today day) ([]v1alpha1.ConsumerStatus, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var clients []v1alpha1.ConsumerStatus
	for c, last := range *l.known.Load() {
		// A day in the future is from before the clock was set back.
		if on := min(day(last.Load()), today); isRecent(on, today) {
			clients = append(clients, v1alpha1.ConsumerStatus{Version: version, UserAgent: c.userAgent, User: c.user, LastSeen: on.String()})
		}
	}
	l.pruneOthers(today)
	return clients, len(l.others)
}

// client identifies a client.
type client struct{ userAgent, user string }

// newClient returns the client with the family of a user agent and a user name, which
// it shares. It does not allocate.
func newClient(userAgent, user string) client {
	family, _, _ := strings.Cut(userAgent, "/")
	return client{userAgent: text.Prefix(family, maxUserAgent), user: text.Prefix(user, maxUser)}
}

// printable returns a name with printable characters only, or noName if it is empty.
func printable(name string) string {
	return text.Printable(cmp.Or(strings.TrimSpace(name), noName), maxUser)
}

// day is a day in UTC, counted from 1970.
type day int32

func dayOf(t time.Time) day { return day(t.Unix() / int64(24*time.Hour/time.Second)) }

// String returns the day as YYYY-MM-DD.
func (d day) String() string {
	return time.Unix(int64(d)*int64(24*time.Hour/time.Second), 0).UTC().Format(time.DateOnly)
}

// isRecent reports whether a day is today, yesterday or in the future.
func isRecent(d, today day) bool { return d >= today-1 }
