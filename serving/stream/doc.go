// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stream delivers each new data point to the watchers that select it.
//
// A Source, a table of newest values, numbers its points. Watchers with the same selection
// share a group, and the Hub finds the groups of a point in an index, so a point costs work
// for the groups that select it and not for every watcher. Each group has a short log of the
// keys that were stored. A watcher is little more than its position in that log:
//
//   - A log entry is delivered only while its point is still the newest of its key. So a slow
//     watcher has at most one pending point per object.
//   - A watcher that fell behind the log scans the source for points that it has not seen, by
//     their numbers, and then continues with the log, where it skips what the scan delivered
//     (see watermarks). The initial events are the same scan, from number zero, and complete
//     when it ends. So a slow client takes no more memory than a fast one.
//
// No watcher has a goroutine or a queue. The API server's watch handler reads a channel of
// events and encodes the event's object. That object is the watcher itself, which picks the
// point at the moment it is written (see Watcher.CacheEncode). Encoded bytes are shared through
// samplestore.Encodings.
package stream
