// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/debounce"
)

// judgeRequests looks at how requests of each version went in the ready pods, and
// retires a version that no pod answers. As long as one pod answers, it stays:
// clients that know only this version, as the HPA controller knows only v1beta1,
// get something.
func (s *scope) judgeRequests(logger klog.Logger) {
	for _, gv := range s.versionsToAsk() {
		failing, answering := s.requests(gv)
		streaks, name, retirements := s.history.streaks, gv.String(), stateKey{state: retiredForFailing, name: gv.String()}
		unanswered := streaks.Observe(stateKey{state: allRequestsFailing, name: name}, len(failing) > 0 && len(answering) == 0)
		answered := streaks.Observe(stateKey{state: requestsSucceeding, name: name}, s.servedByAll(gv))
		grace, recovery := retireGraceAlone, recoveryTimeAlone
		retired := streaks.Get(retirements).Count
		if s.hasRefuge(gv) {
			grace, recovery = retireGrace, recoveryAfter(retired)
		}
		if retired > 0 && answered.Elapsed < recovery {
			s.proving[gv] = fmt.Sprintf("its requests failed: waits until every ready pod has answered them for %s without a break", recovery)
		}
		if !s.isInDiscovery(gv) || !s.allAsked() || unanswered.Count < retireProbes || unanswered.Elapsed < grace {
			continue
		}
		streaks.Observe(retirements, true)
		logger.Info("No pod answers requests of a version, taking it out of discovery", "apiService", apiServiceName(gv), "pod", failing[0].Name, "err", failing[0].answer.Failing[gv])
		s.letGo(gv, "no ready pod answers its requests: "+describeFailing(gv, failing))
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

// requests are the ready pods in which requests of the version fail, and those in
// which they do not. A pod that does not serve it is in neither.
func (s *scope) requests(gv schema.GroupVersion) (failing, answering []pod) {
	for _, p := range s.readyPods() {
		switch {
		case p.answer == nil || !p.answer.Serves[gv]:
		case p.answer.Failing[gv] != "":
			failing = append(failing, p)
		default:
			answering = append(answering, p)
		}
	}
	return failing, answering
}

// isInDiscovery tells whether the version is registered for the serving pods, and
// to stay so.
func (s *scope) isInDiscovery(gv schema.GroupVersion) bool {
	live := s.registered[apiServiceName(gv)]
	return live != nil && s.leadsToServing(live) && !s.isRetiring(gv)
}

func (s *scope) isRetiring(gv schema.GroupVersion) bool {
	return s.apiServices[apiServiceName(gv)].State == v1alpha1.APIServiceRetiring
}

// allAsked tells whether every ready pod could be asked.
func (s *scope) allAsked() bool {
	return !slices.ContainsFunc(s.readyPods(), func(p pod) bool { return p.answer == nil || p.err != nil })
}

// hasRefuge tells whether there is another version of the group that is registered,
// stays so, and is answered by every ready pod.
func (s *scope) hasRefuge(gv schema.GroupVersion) bool {
	return slices.ContainsFunc(s.desired, func(other schema.GroupVersion) bool {
		return other != gv && other.Group == gv.Group && s.isInDiscovery(other) && s.servedByAll(other)
	})
}

// describeFailing names the first pod and its error.
func describeFailing(gv schema.GroupVersion, failing []pod) string {
	return fmt.Sprintf("pod %s (image %s): %s%s", failing[0].Name, imageOf(failing[0].Pod),
		failing[0].answer.Failing[gv], others(len(failing)-1, "pod"))
}

// judgeFailing reports in ServingReady which requests fail, after servingGrace.
func (s *scope) judgeFailing() {
	for _, gv := range s.desired {
		failing, answering := s.requests(gv)
		streak := s.history.streaks.Observe(stateKey{state: requestsFailing, name: gv.String()}, len(failing) > 0)
		if len(failing) == 0 {
			continue
		}
		if s.isTransient(v1alpha1.ConditionServingReady, streak, servingGrace) {
			s.transient = true
			continue
		}
		message := fmt.Sprintf("%s is served, but its requests fail in %s", apiServiceName(gv), describeFailing(gv, failing))
		switch {
		case !s.isInDiscovery(gv):
			message += "; it is not in discovery"
		case len(answering) > 0:
			message += "; it stays in discovery for the pods that answer: delete the pod, or use an image that works"
		default:
			message += "; it is taken out of discovery if that goes on: see the pod's log"
		}
		s.mark(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonRequestFailed, message)
		return
	}
}

// isTransient reports whether a failure is not reported yet: the condition was True,
// and the failure is within its grace period. It then requeues the backend.
func (s *scope) isTransient(condition string, failing debounce.Streak, grace time.Duration) bool {
	if !s.wasTrue(condition) || failing.Elapsed >= grace {
		return false
	}
	s.requeueWithin(transientRecheck)
	return true
}

func (s *scope) wasTrue(condition string) bool {
	return slices.ContainsFunc(s.before.Conditions, func(c metav1.Condition) bool {
		return c.Type == condition && c.Status == metav1.ConditionTrue
	})
}
