// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import "time"

// Propagation delays: how long a change of an APIService may take to reach every component that
// cannot be asked about it.
const (
	// DiscoveryDelay is for kube-apiservers that cannot be asked. The aggregated discovery
	// document follows an APIService through two workers, each of which may wait 10 s for
	// one backend that does not answer, and is refreshed each minute.
	DiscoveryDelay = 90 * time.Second
	// RoutingDelay starts when every kube-apiserver has a change of an APIService in its
	// watch cache. A single worker of the aggregator handles all APIServices in turn, and
	// may wait for one that does not answer.
	RoutingDelay = 10 * time.Second
)
