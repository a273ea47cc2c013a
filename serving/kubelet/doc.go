// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the source of resource metrics: it scrapes
// /metrics/resource of each selected node's kubelet and publishes data points
// into a samplestore.Store.
//
// A scrape is one walk through the files of this package:
//
//	run.go        a node is due and a slot is free
//	link.go       its connection, verified before the token is sent
//	scrape.go     request, status, body
//	body.go       the body in windows of a pooled buffer
//	parse.go      lines to samples, without an allocation each
//	ledger.go     samples by container and pod, kept between scrapes
//	rules.go      samples to rates: the rules of docs/resource-metrics.md
//	publish.go    rates to points
//	run.go        the outcome, and when to ask next (rhythm.go)
//
// Whatever a kubelet sends is foreign input: it may cost a series, a scrape or
// that node, never another node and never the process.
package kubelet
