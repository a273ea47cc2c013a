// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package client keeps the current metrics of a cluster in memory: those of nodes and pods ([Nodes], [Pods]), of any
// object ([Custom]), and those that describe no object ([External]).
//
// A [Watcher] chooses the version of the API by discovery (v1, then v1beta1; for custom metrics v1beta2, then v1beta1),
// lists once, and then watches: each data point arrives as an ADDED event moments after it was stored. If the API cannot
// be watched, as with metrics-server and prometheus-adapter, it polls, and tries to watch again later:
//
//	discovery has no verb watch                  poll, ask discovery again after RetryWatch
//	403, 405, 406, 415, 422, 501                 the same
//	the response is a plain list                 apply the list, poll
//	429, 5xx, cut or malformed streams           retry (Retry-After and jitter) for a minute, then after RetryWatch
//	404, 503                                     choose the version again
//	410, 504                                     list, then watch
//	no byte for two thirds of MaxAge             list, then watch
//	no byte at all, or fewer data than lists     close the stream, poll
//
// Custom metrics are watched under the prefix /watch/, which kube-apiserver treats as a long-running request. If that is
// not served or not allowed, a Watcher uses `?watch=true`, which servers end within a minute, and watches again.
//
// Unless a watch is open and delivering data points, a Watcher lists each PollInterval: it never has less data than a
// client that polls.
//
// A watch of metrics has no DELETED events (KEP-1013): an object that is gone just gets no new data points. So a Watcher
// drops objects that were not renewed within [Options.MaxAge], and those that a complete list no longer has. A data point
// that arrives again, after a reconnect or because lists are more frequent than scrapes, renews nothing.
//
// All readers share the returned objects: do not modify them.
package client
