// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"slices"
)

// ConsumersPath is the path at which a serving pod answers a ConsumerReport as
// JSON. It needs the verb get on this non-resource URL.
const ConsumersPath = "/consumers"

// MaxConsumers bounds how many clients are remembered for each version: the most
// recent ones, and Others counts the rest.
const MaxConsumers = 20

// ConsumerStatus is a client that asked for a version on one of the last two days.
type ConsumerStatus struct {
	// The version: VERSION.GROUP, as APIServices are named.
	Version string `json:"version"`
	// The family of the client's user agent: its part before the first slash,
	// such as kubectl or kube-controller-manager.
	UserAgent string `json:"userAgent"`
	// The client's user name.
	User string `json:"user"`
	// The last day, in UTC, on which it asked: YYYY-MM-DD. A day and no time, so
	// that a steady state writes nothing.
	LastSeen string `json:"lastSeen"`
}

// ConsumerReport is which clients a serving pod saw, answered at ConsumersPath.
// +kubebuilder:object:generate=false
type ConsumerReport struct {
	// Consumers are the clients of today and yesterday, newest day first.
	Consumers []ConsumerStatus `json:"consumers"`
	// Others is the number of clients beyond MaxConsumers, for each version, for who
	// reads the report of a pod: pods cannot add theirs up, since one client may be
	// among the others of each.
	Others map[string]int `json:"others,omitempty"`
}

// OperatorUserAgent is the family of the operator's own user agent.
const OperatorUserAgent = "metrics-backend-operator"

// ownUserAgents verify that versions answer; they are no reason to keep one.
var ownUserAgents = [...]string{OperatorUserAgent, "kubectl-metrics"}

// IsOwnUserAgent tells whether the family of a user agent is that of one of the
// project's own tools, which no record of consumers holds.
func IsOwnUserAgent(family string) bool { return slices.Contains(ownUserAgents[:], family) }

// SortConsumers puts consumers in the order of a report and of a status: the
// newest day first, then by version, user agent and user.
func SortConsumers(consumers []ConsumerStatus) {
	slices.SortFunc(consumers, func(a, b ConsumerStatus) int {
		return cmp.Or(
			cmp.Compare(b.LastSeen, a.LastSeen),
			cmp.Compare(a.Version, b.Version),
			cmp.Compare(a.UserAgent, b.UserAgent),
			cmp.Compare(a.User, b.User),
		)
	})
}
