// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Version is what was observed of one version: all that its next step depends on.
type Version struct {
	GV schema.GroupVersion
	// Name is that of its APIService.
	Name string
	Ours Ours
	Now  time.Time
	// Live is the APIService as it was just read, or nil if there is none.
	Live *apiregistrationv1.APIService
	// Retires says that the version is to be removed: the status says so, or the MetricsBackend is
	// being deleted.
	Retires bool

	// Of a version that the spec names.

	// Field is the field of the spec that names it.
	Field    string
	Adoption v1alpha1.AdoptionPolicy
	// Conflict is why it cannot be registered, as an earlier step found, or empty.
	Conflict string
	// Blocked: nothing of the MetricsBackend may be written.
	Blocked bool
	// LeftOut is why spec.existing does not serve it, and NotServed what it waits for until all
	// servers do; or empty. Served is for how long that has been so.
	LeftOut, NotServed string
	Served             time.Duration
	// Paused is why nothing of someone else is taken over for now.
	Paused Pause
	// OtherMoves is another APIService that moves, OtherTrial one of the group that is on trial, and
	// OtherNotOwned says why one of the group may not be taken over; or empty.
	OtherMoves, OtherTrial, OtherNotOwned string
	// Shared: the group has an APIService of someone else.
	Shared  bool
	Contest *Contest
	// Applied: the APIService was compared with what we want since the reconciliation began.
	Applied bool
	// Succeeding is for how long requests to an APIService on trial have succeeded.
	Succeeding time.Duration

	// Of a version that is removed.

	// Deleted: the APIService was deleted since the reconciliation began.
	Deleted bool
	// Refused is why kube-apiserver refuses the hand-back, or nil.
	Refused error

	// The observations are nil as long as they were not made.

	Holder *Holder
	Reach  *Reach
	// Successor is the MetricsBackend that is about to take it over, or empty.
	Successor *string
	// Discovery is what the end of the version in discovery waits for, or empty.
	Discovery *string
	// Routing is what the end of requests to our pods waits for, or empty.
	Routing *string
	// Previous is the Service of the previous owner.
	Previous *PreviousService
}

// Pause is why nothing of someone else is taken over, and for how long; the zero value is none.
type Pause struct {
	Reason, Message string
	Left            time.Duration
}

// Holder is the MetricsBackend that an APIService's label names, if it is another one.
type Holder string

const (
	// HolderMissing does not exist.
	HolderMissing Holder = "Missing"
	// HolderStays is not being deleted.
	HolderStays Holder = "Stays"
	// HolderGoes is being deleted, and waits for a successor.
	HolderGoes Holder = "Goes"
)

// Reach says whether every kube-apiserver reaches our pods. It is checked again after RetryAfter, if
// that is not known yet.
type Reach struct {
	Reached    bool
	RetryAfter time.Duration
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
	case NeedHolder:
		return v.Holder != nil
	case NeedReach:
		return v.Reach != nil
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
	switch {
	case v.Retires && v.isOurs() && v.isAdopted():
		return Restoring
	case v.Retires:
		return Retiring
	case v.Live == nil:
		return Pending
	case !v.Ours.HasLabel(v.Live) || !v.pointsToTarget():
		return Moving
	case IsUnverified(v.Live):
		return Trial
	}
	return Registered
}

// IsUnverified reports whether an APIService was adopted, and its requests have not yet succeeded
// for TrialTime.
func IsUnverified(service *apiregistrationv1.APIService) bool {
	return service.Annotations[v1alpha1.AnnotationUnverified] != ""
}
