// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package client keeps the current metrics of a cluster at hand: those of nodes and pods ([Nodes], [Pods]), those of any
// object ([Custom]) and those that describe none ([External]).
//
// A [Watcher] picks the version of the API by discovery (v1, then v1beta1; of custom metrics v1beta2, then v1beta1),
// lists once, and then watches: each data point arrives as an ADDED event, moments after it was stored. Where watch is
// not served, or refused, it polls instead, so that it works with metrics-server and prometheus-adapter as well, and
// tries again from time to time:
//
//	discovery names no watch verb              poll, look again after RetryWatch
//	403, 405, 406, 415, 422, 501               the same
//	a plain list answers the watch             take the list, poll
//	429, 5xx, cut or unreadable streams        try again (Retry-After and jitter), for a minute; then after RetryWatch
//	404, 503                                   choose the version anew
//	410, 504                                   list again, then watch
//	no byte for two thirds of MaxAge           list, open another
//	no byte at all, or not what lists have     the stream is given up: poll
//
// Custom metrics are watched at the prefix /watch/, which kube-apiserver takes for the long request that it is; where that
// is not served or not allowed, with `?watch=true`, which servers end within a minute and a Watcher resumes.
//
// While no watch is open and bringing data points, for these or other reasons, lists come each PollInterval: whatever is
// wrong with a watch, a Watcher has what a poller has.
//
// A watch of metrics has no DELETED events (KEP-1013): an object that is gone just has no new data points. So a Watcher
// drops what was not renewed within [Options.MaxAge], and what a complete list no longer holds. A data point that is
// replayed, by a reconnect or by a poll that is quicker than the scrapes, renews nothing.
//
// Objects are handed out as pointers and shared between all readers: do not change them.
package client
