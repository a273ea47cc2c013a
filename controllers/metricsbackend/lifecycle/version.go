// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/comparison"
	"github.com/metricsbackend/metrics-backend-operator/internal/debounce"
)

// Version is what was observed of one version: all that its next step depends on.
type Version struct {
	GV       schema.GroupVersion
	Identity Identity
	Now      time.Time
	// Live is the APIService as it was just read, or nil if there is none.
	Live *apiregistrationv1.APIService
	// Retires says that the version is to be removed: the status says so, or the MetricsBackend is
	// being deleted.
	Retires bool

	// Of a version that the spec names.

	// Wanted says that the spec names it and nobody else may have it, or that it is kept for its clients.
	Wanted bool
	// Section is the field of the spec that its group has.
	Section  string
	Adoption v1alpha1.AdoptionPolicy
	// DespiteLost: it may be taken over although autoscalers lose metrics.
	DespiteLost bool
	// Differences are between someone else's implementation and our pods, as of the last comparison.
	Differences comparison.Result
	// Conflict is why it cannot be registered, as an earlier step found, or empty.
	Conflict string
	// Blocked: nothing of the MetricsBackend may be written.
	Blocked bool
	// LeftOut is why spec.existing does not serve it, or empty.
	LeftOut string
	// Asked: the servers were asked what they serve. Missing is why the Service of spec.existing does
	// not exist, or empty.
	Asked   bool
	Missing string
	Servers Servers
	Rollout Rollout
	// Lacked are the templates of which a server said that it lacks the version.
	Lacked map[string]bool
	// Served is for how long the target has been ready to take the APIService over.
	Served time.Duration
	// Unanswered is since when no ready pod answers its requests. Recovering is what it waits for after
	// it was retired for that, or empty.
	Unanswered debounce.Streak
	Recovering string
	// Alternative: every ready pod answers another registered version of the group. OtherServed: the
	// servers serve another version of the group that the spec names. Elsewhere: a version of the group
	// is registered for other servers.
	Alternative, OtherServed, Elsewhere bool
	// Gone is why nobody can answer behind the APIService, whose Service or its namespace is gone; or empty.
	Gone string
	// Paused is why nothing of someone else is taken over for now.
	Paused Pause
	// OtherMoves is another APIService that moves, OtherTrial one of the group that is on trial, and
	// OtherNotOwned says why one of the group may not be taken over; or empty.
	OtherMoves, OtherTrial, OtherNotOwned string
	// Shared: the group has an APIService that points to someone else's Service.
	Shared  bool
	Contest *Contest
	// Applied: the APIService was compared with what we want since the reconciliation began.
	Applied bool
	// Succeeding and Failing are since when requests to an APIService on trial, or contested, succeed, or fail.
	Succeeding, Failing debounce.Streak

	// Of a version that is removed.

	// Deleted: the APIService was deleted since the reconciliation began.
	Deleted bool
	// Refused is why kube-apiserver refuses the hand-back, or nil.
	Refused error

	// Known are the observations that were made; the fields below are what they found.
	Known sets.Set[Need]

	Holder Holder
	Reach  Reach
	// Uncompared is why someone else's implementation and our pods cannot be compared, or empty.
	Uncompared string
	// Consumers: clients keep a version that the spec does not name, or it is not known yet who uses it.
	Consumers bool
	// PreviousReady: the previous owner is ready to get requests again.
	PreviousReady bool
	// Successor is the MetricsBackend that is about to take it over, or empty.
	Successor string
	// Discovery is what the end of the version in discovery waits for, or empty.
	Discovery string
	// Routing is what the end of requests to our pods waits for, or empty.
	Routing string
	// Previous is the Service of the previous owner.
	Previous PreviousService
}

// Rollout is the state of our pods' Deployment. Finished: every pod is available and of the newest
// revision. Stuck: something keeps it from progressing.
type Rollout struct{ Finished, Stuck bool }

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
	// HolderExists is not being deleted.
	HolderExists Holder = "Exists"
	// HolderDeleting is being deleted, and waits for a successor.
	HolderDeleting Holder = "Deleting"
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

// Name returns that of its APIService.
func (v *Version) Name() string { return manifests.APIServiceName(v.GV) }

// state returns the state in which the version was observed.
func (v *Version) state() State {
	switch {
	case v.Retires && v.isOurs() && v.IsRecorded() && !v.isHeld() && !v.isRepointed():
		return Restoring
	case v.Retires:
		return Retiring
	case v.Live == nil:
		return Pending
	case !v.Identity.HasLabel(v.Live) || !v.pointsToTarget():
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
