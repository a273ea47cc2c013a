// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package valuecache holds the newest values of the metrics that are watched, and is
// what stream.Hub distributes them from: for custom and for external metrics alike.
//
// An API group has one Cache and one Hub. Before it begins a watch it has the Cache
// subscribe to a Subscription, which says how the values of a metric are read, what objects are
// there, and how an event looks; the values are then found under keys whose
// namespace is the subscription's ID and whose name is the described object's, or the labels
// in order (query.Value.Key). All watches of the same subscription share it:
//
//	cache := valuecache.NewCache("custom.metrics.k8s.io", clock, querier)
//	hub := stream.NewHub(cache, clock, random, settings)
//	cache.Observe(hub.Publish)
//	go cache.Run(ctx)
//	…
//	release, err := cache.Subscribe(ctx, subscription) // 404 or 400 of Read, or a query.Failure
//	hub.Watch(ctx, stream.Request{
//		Selection: stream.Selection{Namespace: subscription.ID, Labels: …, Fields: …},
//		Release:   release, …
//	})
//
// A value is a new data point, and an event, when its time or the value itself has
// changed. With each result the subscription is read again: a rule that was edited, objects
// that came, went, or have other labels now take effect with the next values, and
// no watch has to be opened again for that.
//
// While a source fails, watches stay open and hear nothing, unless the metric has a
// fallback. New watches begin with the last values as long as these are no older
// than four intervals (at least a minute); then they are refused with the source's
// failure until it answers again. A metric that no longer exists has no values at
// once, and new watches of it are refused; those that are open hear of it again when it does.
package valuecache
