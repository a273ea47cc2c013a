// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/debounce"
)

// countUnanswered counts for how long no ready pod answers requests of a version, or all do. While one
// pod answers, the version stays: some clients know no other, such as the HPA controller.
func (s *reconcileState) countUnanswered() {
	servers := s.servers()
	for _, gv := range s.versionsToProbe() {
		failing, answering := servers.ByRequests(gv)
		streaks, name := s.history.streaks, gv.String()
		streaks.Set(stateKey{state: allRequestsFailing, name: name}, len(failing) > 0 && len(answering) == 0)
		answered := streaks.Set(stateKey{state: requestsSucceeding, name: name}, servers.Serve(gv))
		recovery := recoveryTimeAlone
		retired := streaks.Get(stateKey{state: retiredForFailing, name: name}).Count
		if s.hasAlternative(gv) {
			recovery = recoveryAfter(retired)
		}
		if retired > 0 && answered.Elapsed < recovery {
			s.probed.recovering[gv] = fmt.Sprintf("its requests failed: waits until every ready pod has answered them for %s without a break", recovery)
		}
	}
}

// recoveryAfter returns the recovery time of a version after that many retirements.
func recoveryAfter(retired int) time.Duration {
	d := recoveryTime
	for range retired - 1 {
		d = min(2*d, maxRecoveryTime)
	}
	return d
}

// isInDiscovery reports whether the version is registered for our pods and not being
// retired.
func (s *reconcileState) isInDiscovery(gv schema.GroupVersion) bool {
	live := s.registered[apiServiceName(gv)]
	return live != nil && s.ours().PointsToPods(live) && !s.isRetiring(gv)
}

func (s *reconcileState) isRetiring(gv schema.GroupVersion) bool {
	return s.apiServices[apiServiceName(gv)].State.IsRetiring()
}

// hasAlternative reports whether every ready pod answers another registered version of
// the group.
func (s *reconcileState) hasAlternative(gv schema.GroupVersion) bool {
	return slices.ContainsFunc(s.versions.desired, func(other schema.GroupVersion) bool {
		return other != gv && other.Group == gv.Group && s.isInDiscovery(other) && s.servers().Serve(other)
	})
}

// reportFailingRequests reports in ServingReady which requests fail, after servingGrace.
func (s *reconcileState) reportFailingRequests() {
	for _, gv := range s.versions.desired {
		failing, answering := s.servers().ByRequests(gv)
		streak := s.history.streaks.Set(stateKey{state: requestsFailing, name: gv.String()}, len(failing) > 0)
		if len(failing) == 0 {
			continue
		}
		if s.isTransient(v1alpha1.ConditionServingReady, streak, servingGrace) {
			s.probed.transient = true
			continue
		}
		message := fmt.Sprintf("%s is served, but its requests fail in %s", apiServiceName(gv), failing.DescribeFailing(gv))
		switch {
		case !s.isInDiscovery(gv):
			message += "; it is not in discovery"
		case len(answering) > 0:
			message += "; it stays in discovery for the pods that answer: delete the pod, or use an image that works"
		default:
			message += "; it is taken out of discovery if that goes on: see the pod's log"
		}
		s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonRequestFailed, message)
		return
	}
}

// isTransient reports whether a failure is not reported yet: the condition was True,
// and the failure is within its grace period. It then requeues the backend.
func (s *reconcileState) isTransient(condition string, failing debounce.Streak, grace time.Duration) bool {
	if !s.wasTrue(condition) || failing.Elapsed >= grace {
		return false
	}
	s.requeueWithin(transientRecheck)
	return true
}

func (s *reconcileState) wasTrue(condition string) bool {
	return meta.IsStatusConditionTrue(s.storedStatus.Conditions, condition)
}
