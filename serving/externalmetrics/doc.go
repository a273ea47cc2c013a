// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package externalmetrics serves external.metrics.k8s.io v1beta1: values that describe
// no object of the cluster, by the name of a metric and a label selector.
//
// A request walks through it like this: request (what the path and the query ask for),
// package policy (whether it may be answered), query.ExternalMetrics (which question
// that is), query.Querier (its shared answer), and values (the objects). Paths, discovery
// and streams are package valueapi's.
package externalmetrics
