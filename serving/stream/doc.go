// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stream hands each new data point to the watchers that want it.
//
// A source (a table of newest values) numbers its points. Watchers that select
// the same share a group; the hub finds the groups of a point by an index, so a
// point costs the groups that want it and not all watchers. A group keeps a
// short log of the keys that were stored. A watcher is little more than its
// position in that log:
//
//   - A log entry counts only while its point is still the newest of its key.
//     Whoever falls behind thus has at most one point of an object ahead of it.
//   - A watcher that the log has outrun sweeps the source for what it has not
//     seen, going by the points' numbers, and then takes up the log again, where
//     it skips what the sweep came by (see coverage). The initial events are the
//     same sweep, from number zero: all of them are out when it ends. So a slow
//     client costs no more memory than a fast one.
//
// No watcher has a goroutine or a queue of its own. The API server's stock watch
// handler reads a channel of events and encodes the event's object; that object
// is the watcher itself (see Watcher.CacheEncode), which picks the point at the
// moment at which it is written. Bytes are shared through samplestore.Encodings.
package stream
