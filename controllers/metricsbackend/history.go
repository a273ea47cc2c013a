// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"time"

	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/adoption"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/certificates"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/reports"
	"github.com/metricsbackend/metrics-backend-operator/internal/debounce"
)

// history is what the reconciler remembers of one backend between passes. It may be
// lost at a restart: waits then start over, and the status may be written once more.
type history struct {
	streaks      *debounce.Tracker[stateKey]
	reports      *debounce.Tracker[reports.Key]
	certificates *debounce.Tracker[certificates.StateKey]
	contests     map[string]*lifecycle.Contest
	// comparisons are of someone else's APIServices, by name.
	comparisons map[string]compared
	// adoption is of the checks before an APIService is adopted.
	adoption adoption.State
	// reported is what this operator, which another one excludes, wrote about that, at
	// reportedAt.
	reported   string
	reportedAt time.Time
	// statusDropped: kube-apiserver did not store all of the last status, since the CRD is older than the operator.
	statusDropped bool
}

// stateKey names a state whose duration is tracked: of the backend, or of the
// APIService, version, source or rule that name and detail give.
type stateKey struct {
	state        trackedState
	name, detail string
}

type trackedState int

const (
	// reconcileFailing counts failed passes in a row.
	reconcileFailing trackedState = iota
	// probeFailing: a ready pod or endpoint does not answer the probe.
	probeFailing
	// requestsFailing, allRequestsFailing and requestsSucceeding are of a version, by
	// pods: at least one fails, all fail, all succeed.
	requestsFailing
	allRequestsFailing
	requestsSucceeding
	// retiredForFailing counts how often a version was retired since its requests failed.
	retiredForFailing
	// templateLacks: a pod of the template in detail said that it does not serve a version.
	templateLacks
	// versionUnavailable: requests for a version through kube-apiserver fail.
	versionUnavailable
	// missingInDiscovery: a kube-apiserver does not list a registered version.
	missingInDiscovery
	// targetReady: the Service in detail has been ready to take over an APIService.
	targetReady
	// pointedAway: every kube-apiserver has seen an APIService point to other pods than ours.
	pointedAway
	// reportIgnored: the owner of the backend does not react to this operator's report.
	reportIgnored
	// unregistered: a version has no APIService any more.
	unregistered
	// previousOwnerFailing: an APIService is to be restored, and its previous owner does not
	// answer, or cannot be asked.
	previousOwnerFailing
	// guestTokenFailing: there is no token to ask the previous owner of an APIService with.
	guestTokenFailing
	// previousLacking: the previous owner of an APIService did not serve all that autoscalers read, in the generation in detail.
	previousLacking
	// autoscalerFailing: an autoscaler, name/detail, gets no values.
	autoscalerFailing
	// adoptionFailing and adoptionSucceeding: requests through kube-apiserver to an
	// APIService that was adopted and is not verified yet.
	adoptionFailing
	adoptionSucceeding
)

// history returns what is remembered of a backend.
func (r *Reconciler) history(backend string) *history {
	h, _ := r.histories.LoadOrStore(backend, &history{
		streaks: debounce.New[stateKey](r.Clock), reports: debounce.New[reports.Key](r.Clock), certificates: debounce.New[certificates.StateKey](r.Clock), contests: map[string]*lifecycle.Contest{}, comparisons: map[string]compared{},
	})
	return h.(*history)
}

// waited reports whether the state has been observed for at least d. Otherwise it
// requeues the backend for that moment.
func (s *reconcileState) waited(key stateKey, d time.Duration) bool {
	left := d - s.history.streaks.Set(key, true).Elapsed
	if left > 0 {
		s.requeueWithin(left)
	}
	return left <= 0
}

// Grace periods: how long a failure must last before the operator reports it or
// acts on it. That of cert-manager's Certificate is certificateDeletionGrace.
const (
	// failuresToReport is the number of failed passes in a row before the conditions
	// report the error. Most errors are gone at the next try.
	failuresToReport = 3
	// previousRecheck is after how long a previous owner that lacks what autoscalers read is asked again.
	previousRecheck = 2 * time.Minute
	// valuesMissing is for how long an autoscaler must have got no value of a metric to do without it.
	valuesMissing = 10 * time.Minute
	// servingGrace is for pods and endpoints that do not answer, or whose requests fail.
	servingGrace = 20 * time.Second
	// requestGrace is for requests through kube-apiserver: one fails with each restart
	// of a kube-apiserver.
	requestGrace = 15 * time.Second
	// adoptionTimeout is for requests to an APIService on trial: where packets are dropped,
	// clients wait as long each time.
	adoptionTimeout = 5 * time.Second
	// successorTimeout is how long a deleted backend keeps its APIServices for another
	// backend to take over, counted from the deletion timestamp. A successor that is
	// ready takes over soon after endpointDelay.
	successorTimeout = 30 * time.Second
	// transientRecheck is when a failure within its grace period is checked again.
	transientRecheck = 5 * time.Second
)

// A version that was retired since no pod answered its requests is registered again after recoveryTime.
const (
	// recoveryTime is how long all pods must answer without interruption. It doubles
	// with each retirement up to maxRecoveryTime, so that an unstable version does not
	// flap in discovery.
	recoveryTime    = time.Minute
	maxRecoveryTime = 32 * time.Minute
	// recoveryTimeAlone replaces it while clients have no other version to use.
	recoveryTimeAlone = 30 * time.Second
)
