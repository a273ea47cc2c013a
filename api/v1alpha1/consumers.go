// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"slices"
)

// ConsumersPath is the path at which a serving pod returns a ConsumerReport as JSON.
// Clients need the verb get on this non-resource URL.
const ConsumersPath = "/consumers"

// MaxConsumers limits how many clients are recorded for each version: the most
// recent ones; Others counts the rest.
const MaxConsumers = 20

// ConsumerStatus is a client that used a version on one of the last two days.
type ConsumerStatus struct {
	// The API version as VERSION.GROUP, like the name of an APIService.
	// +required
	Version string `json:"version"`
	// The client's user agent up to the first slash, such as kubectl or
	// kube-controller-manager.
	// +required
	UserAgent string `json:"userAgent"`
	// The client's user name.
	// +required
	User string `json:"user"`
	// The last day in UTC on which it used the version, as YYYY-MM-DD. There is no
	// time of day, so that a steady state causes no writes.
	// +required
	LastSeen string `json:"lastSeen"`
}

// ConsumerReport lists the clients of a serving pod. It is returned at ConsumersPath.
// +kubebuilder:object:generate=false
type ConsumerReport struct {
	// Consumers are the clients of today and yesterday, newest day first.
	Consumers []ConsumerStatus `json:"consumers"`
	// Others is the number of further clients beyond MaxConsumers, by version. The
	// numbers of several pods cannot be added, since a client may use each of them.
	Others map[string]int `json:"others,omitempty"`
}

// OperatorUserAgent is the operator's user agent up to the first slash.
const OperatorUserAgent = "metrics-backend-operator"

// ownUserAgents only verify that versions answer, which is no reason to keep one.
var ownUserAgents = [...]string{OperatorUserAgent, "kubectl-metrics-backend"}

// IsOwnUserAgent reports whether a user agent, up to its first slash, is one of the
// project's own tools, which are not recorded as consumers.
func IsOwnUserAgent(family string) bool { return slices.Contains(ownUserAgents[:], family) }

// SortConsumers sorts consumers as in a report and in a status: newest day first,
// then by version, user agent and user.
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
