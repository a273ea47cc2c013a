// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"time"

	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/adoption"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/certificates"
	"github.com/metricsbackend/metrics-backend-operator/internal/debounce"
)

// history is what the reconciler remembers of one backend between passes. It may be
// lost at a restart: waits then start over, and the status may be written once more.
type history struct {
	streaks      *debounce.Tracker[stateKey]
	certificates *debounce.Tracker[certificates.StateKey]
	contests     contests
	// adoption is of the checks before an APIService is adopted.
	adoption adoption.State
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
	// pointedAway: every kube-apiserver has seen an APIService point to other pods.
	pointedAway
	// unregistered: a version has no APIService any more.
	unregistered
	// previousOwnerFailing: the previous owner of an APIService does not answer.
	previousOwnerFailing
	// adoptionFailing and adoptionSucceeding: requests through kube-apiserver to an
	// APIService that was adopted and is not verified yet.
	adoptionFailing
	adoptionSucceeding
	kubeletsFailing
	sourceFailing
	// ruleFailing: the rule with a path fails for the reason in detail.
	ruleFailing
	// sourceMessageDiffers and ruleMessageDiffers: only the message of a source, or of a rule and reason, differs
	// from the status.
	sourceMessageDiffers
	ruleMessageDiffers
)

// history returns what is remembered of a backend.
func (r *Reconciler) history(backend string) *history {
	h, _ := r.histories.LoadOrStore(backend, &history{
		streaks: debounce.New[stateKey](r.Clock), certificates: debounce.New[certificates.StateKey](r.Clock), contests: contests{},
	})
	return h.(*history)
}

// waited reports whether the state has been observed for at least d. Otherwise it
// requeues the backend for that moment.
func (s *reconcileState) waited(key stateKey, d time.Duration) bool {
	left := d - s.history.streaks.Observe(key, true).Elapsed
	if left > 0 {
		s.requeueWithin(left)
	}
	return left <= 0
}
