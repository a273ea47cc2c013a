// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// PreviousOwnerGrace is how long the previous owner of an APIService that is handed back may
// fail, since its pods may be restarting.
const PreviousOwnerGrace = 30 * time.Second

// retiring are the transitions of a version that is removed from discovery: the intent is in the
// status, or the MetricsBackend is being deleted.
var retiring = []Transition{
	{
		From: []State{Retiring}, On: "another field manager has pointed the APIService to another Service",
		when: func(v *Version) bool { return v.isOurs() && !v.isHeld() && v.isRepointed() }, Do: Disown, To: Retiring,
	},
	{
		From: []State{Retiring, Restoring}, On: "another MetricsBackend is ready to take the version over, less than 30 s after the deletion of this one",
		when: (*Version).isOurs, needs: NeedSuccessor, holds: func(v *Version) bool { return v.Successor != "" },
		text: func(v *Version) string {
			return fmt.Sprintf("APIService %s is about to be taken over by MetricsBackend %q", v.Name(), v.Successor)
		},
	},
	{
		From: []State{Retiring}, On: "there is no APIService, and a kube-apiserver lists the version in its discovery, or cannot be asked for less than 90 s",
		when: (*Version).isAbsent, needs: NeedDiscovery, holds: func(v *Version) bool { return v.Discovery != "" },
		text: func(v *Version) string { return v.Discovery },
	},
	{From: []State{Retiring}, On: "there is no APIService", when: (*Version).isAbsent, To: Gone},
	{
		From: []State{Retiring}, On: "the APIService is not ours, and a kube-apiserver may still route to our pods",
		when: (*Version).isOthers, needs: NeedRouting, holds: func(v *Version) bool { return v.Routing != "" },
		text: func(v *Version) string { return v.Routing },
	},
	{From: []State{Retiring}, On: "the APIService is not ours", when: (*Version).isOthers, To: Gone},
	{
		From: []State{Retiring}, On: "a finalizer holds the deleted APIService",
		when: (*Version).isHeld, text: func(v *Version) string {
			return fmt.Sprintf("APIService %s still exists: something holds it with a finalizer", v.Name())
		},
	},
	{From: []State{Retiring}, On: "the APIService is ours, and has no record of a previous owner", when: always, Do: Delete},

	{
		From: []State{Restoring}, On: "the record cannot be used, or kube-apiserver forbids to restore it",
		when: func(v *Version) bool { return v.recordProblem() != nil }, Do: Delete, Event: "HandBackImpossible", To: Retiring,
		text: func(v *Version) string {
			return fmt.Sprintf("APIService %s is deleted, not handed back: %v", v.Name(), v.recordProblem())
		},
	},
	{
		From: []State{Restoring}, On: "the previous owner serves the version",
		when: always, needs: NeedPreviousOwner, holds: func(v *Version) bool { return v.Previous.Problem == "" }, Do: HandBack, To: Retiring,
	},
	{
		From: []State{Restoring}, On: "the previous owner has failed for less than 30 s",
		when: func(v *Version) bool { return v.Previous.Transient && v.Previous.Failing < PreviousOwnerGrace },
		text: func(v *Version) string {
			return fmt.Sprintf("APIService %s still exists: this waits up to %s for Service %s, to which it is handed back: %s",
				v.Name(), PreviousOwnerGrace, v.Recorded().Target(), v.Previous.Problem)
		},
	},
	{
		From: []State{Restoring}, On: "the previous owner fails",
		when: always, Do: Delete, Event: "PreviousOwnerSilent", To: Retiring, text: func(v *Version) string {
			return fmt.Sprintf("APIService %s is deleted, not handed back to Service %s: %s", v.Name(), v.Recorded().Target(), v.Previous.Problem)
		},
	},
}

func always(*Version) bool { return true }

func (v *Version) isAbsent() bool { return v.Live == nil }

func (v *Version) isOurs() bool { return v.Live != nil && v.Identity.Owns(v.Live) }

func (v *Version) isOthers() bool { return !v.isAbsent() && !v.isOurs() }

func (v *Version) isHeld() bool { return v.Deleted || v.Live.DeletionTimestamp != nil }

func (v *Version) isRepointed() bool { return v.Identity.IsRepointed(v.Live) }

// isAdopted reports whether the APIService, which is ours, is to be handed back.
func (v *Version) isAdopted() bool {
	return v.IsRecorded() && !v.isHeld() && !v.isRepointed()
}

// IsRecorded reports whether the APIService has a record of a previous owner.
func (v *Version) IsRecorded() bool {
	return v.Live != nil && metav1.HasAnnotation(v.Live.ObjectMeta, v1alpha1.AnnotationPreviousOwner)
}

// recordProblem returns why an APIService cannot be handed back to the recorded owner, or nil.
func (v *Version) recordProblem() error {
	previous, err := ReadPreviousOwner(v.Live)
	switch {
	case err != nil:
		return err
	case previous.Service.Namespace == v.Identity.Serving.Namespace && previous.Service.Name == v.Identity.Serving.Name():
		// It would point to the pods that are being removed.
		return fmt.Errorf("annotation %s names Service %s, which is this MetricsBackend's own", v1alpha1.AnnotationPreviousOwner, previous.Target())
	}
	return v.Refused
}

// Recorded returns the recorded owner, which is valid.
func (v *Version) Recorded() *PreviousOwner {
	previous, _ := ReadPreviousOwner(v.Live)
	return previous
}
