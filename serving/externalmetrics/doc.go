// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package externalmetrics serves external.metrics.k8s.io v1beta1: values that describe
// no object of the cluster, by the name of a metric and a label selector.
//
// A request walks through it like this: request (what the path and the query ask for),
// package policy (whether it is allowed), query.ExternalMetrics (the query of the metric),
// query.Querier (its shared result), and values (the objects). Package valueapi handles paths,
// discovery and streams.
package externalmetrics
