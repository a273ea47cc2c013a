// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

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
	// Others is the number of clients beyond MaxConsumers, for each version.
	Others map[string]int `json:"others,omitempty"`
}
