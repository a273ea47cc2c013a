// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Version is what was observed of one version: all that its next step depends on.
type Version struct {
	// Name is that of its APIService.
	Name string
	Ours Ours
	// Live is the APIService as it was just read, or nil if there is none.
	Live *apiregistrationv1.APIService
	// Deleted says that it was deleted since the reconciliation began.
	Deleted bool
	// Refused is why kube-apiserver refuses the hand-back, or nil.
	Refused error

	// The observations are nil as long as they were not made.

	// Successor is the MetricsBackend that is about to take it over, or empty.
	Successor *string
	// Discovery is what the end of the version in discovery waits for, or empty.
	Discovery *string
	// Routing is what the end of requests to our pods waits for, or empty.
	Routing *string
	// Previous is the Service of the previous owner.
	Previous *PreviousService
}

// PreviousService is what was observed of the Service of a previous owner.
type PreviousService struct {
	// Problem is why it does not serve the version, or empty. Transient says that it may end by
	// itself, and Failing is how long there has been one.
	Problem   string
	Transient bool
	Failing   time.Duration
}

// knows reports whether an observation was made.
func (v *Version) knows(n Need) bool {
	switch n {
	case NeedSuccessor:
		return v.Successor != nil
	case NeedDiscovery:
		return v.Discovery != nil
	case NeedRouting:
		return v.Routing != nil
	case NeedPreviousOwner:
		return v.Previous != nil
	}
	return true
}

// state returns the state in which the version was observed.
func (v *Version) state() State {
	if v.isOurs() && v.isAdopted() {
		return Restoring
	}
	return Retiring
}
