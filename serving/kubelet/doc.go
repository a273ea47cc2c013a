// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the source of resource metrics: it scrapes /metrics/resource of
// each selected node's kubelet and publishes data points to a samplestore.Store.
//
// A scrape passes the files of this package in this order:
//
//	schedule.go    a node is due and a slot is free
//	scrape.go      request, status, body (textparse: lines, labels, numbers)
//	addresses.go   the node's addresses in turn
//	roundtrip.go   the request and its response, with credentials (credentials.go)
//	connection.go  the node's connection, verified before the token is sent
//	parse.go       lines to samples, without an allocation each
//	nodestate.go   samples by container and pod, kept between scrapes
//	rates.go       samples to rates: the rules of docs/concepts/resource-metrics.md
//	points.go      rates to points
//	schedule.go    the result, and when to scrape next (refresh)
//
// A kubelet's answer is untrusted input: it may cost a series, a scrape or that node,
// but never another node and never the process.
package kubelet
