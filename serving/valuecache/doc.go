// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package valuecache holds the newest values of the metrics that are watched, and is
// what stream.Hub distributes them from: for custom and for external metrics alike.
//
// An API group has one Store and one Hub. Before it begins a watch it has the Store
// follow a Feed, which says how the values of a metric are read, what objects are
// there, and how an event looks; the values are then found under keys whose
// namespace is the feed's ID and whose name is the described object's, or the labels
// in order (query.Value.Key). All watches of the same feed share it:
//
//	store := valuecache.NewStore("custom.metrics.k8s.io", clock, querier)
//	hub := stream.NewHub(store, clock, random, settings)
//	store.Observe(hub.Publish)
//	go store.Run(ctx)
//	…
//	release, err := store.Follow(ctx, feed)     // 404, 400; 503 by query.StatusError
//	hub.Watch(ctx, stream.Request{
//		Selection: stream.Selection{Namespace: feed.ID, Labels: …, Fields: …},
//		Release:   release, …
//	})
//
// A value is a new data point, and an event, when its time or the value itself has
// changed. With each answer the feed is read anew: a rule that was edited, objects
// that came, went, or have other labels now take effect with the next values, and
// no watch has to be opened again for that.
//
// While a source fails, watches stay open and hear nothing, unless the metric has a
// fallback. New watches begin with the last values as long as these are no older
// than four intervals (at least a minute); then they are refused with the source's
// failure until it answers again. A metric that no longer exists has no values at
// once, and new watches of it are refused; those that are open hear of it again when it does.
package valuecache
