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
)

// A version that pods list in discovery and whose requests fail (an answer of 5xx,
// none in time, or not what was asked for; 404 counts as not served at all).
const (
	// failingPatience is how long it must go on before a healthy condition says so.
	failingPatience = 20 * time.Second
	// failingFor and failingLooks are how long, and in how many probes in a row, no
	// pod may answer requests before the version is taken out of discovery.
	failingFor   = time.Minute
	failingLooks = 4
	// failingAlone takes the place of failingFor while no other version works that
	// clients could go to: what is down for minutes should be back at once.
	failingAlone = 10 * time.Minute
	// goodFor is how long all pods must then answer without a break before it is
	// registered again. It doubles each time up to goodForAtMost, so that a version
	// that comes and goes is not in discovery by turns.
	goodFor       = time.Minute
	goodForAtMost = 32 * time.Minute
	// goodForAlone takes its place while no other version works.
	goodForAlone = 30 * time.Second
	// soonAgain is when to look again at what may be a hiccup.
	soonAgain = 5 * time.Second
)

// judgeRequests looks at how requests of each version went in the ready pods, and
// retires a version that no pod answers. As long as one pod answers, it stays:
// clients that know only this version, as the HPA controller knows only v1beta1,
// get something.
func (r *Reconciler) judgeRequests(logger klog.Logger, s *scope) {
	for _, gv := range s.versionsToAsk() {
		failing, answering := s.requests(gv)
		unanswered := r.streaks.look(s.backend.Name, "unanswered "+gv.String(), s.now, len(failing) > 0 && len(answering) == 0)
		good := r.streaks.look(s.backend.Name, "answered "+gv.String(), s.now, s.servedByAll(gv))
		patience, proof := failingAlone, goodForAlone
		times := r.streaks.count(s.backend.Name, retiredForFailing+gv.String(), 0)
		if s.hasRefuge(gv) {
			patience, proof = failingFor, proofAfter(times)
		}
		if times > 0 && good.lasted(s.now) < proof {
			s.proving[gv] = fmt.Sprintf("its requests failed: waits until every ready pod has answered them for %s without a break", proof)
		}
		if !s.isInDiscovery(gv) || !s.allAsked() || unanswered.looks < failingLooks || unanswered.lasted(s.now) < patience {
			continue
		}
		r.streaks.count(s.backend.Name, retiredForFailing+gv.String(), 1)
		logger.Info("No pod answers requests of a version, taking it out of discovery", "apiService", apiServiceName(gv), "pod", failing[0].Name, "err", failing[0].answer.Failing[gv])
		s.letGo(gv, "no ready pod answers its requests: "+describeFailing(gv, failing))
	}
}

// retiredForFailing counts how often a version was.
const retiredForFailing = "retired for failing "

// proofAfter is how long a version that was retired so often must be answered.
func proofAfter(times int) time.Duration {
	d := goodFor
	for range times - 1 {
		d = min(2*d, goodForAtMost)
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

// judgeFailing says in ServingReady which requests fail, once they do for longer
// than a hiccup.
func (r *Reconciler) judgeFailing(s *scope) {
	for _, gv := range s.desired {
		failing, answering := s.requests(gv)
		going := r.streaks.look(s.backend.Name, "failing "+gv.String(), s.now, len(failing) > 0)
		if len(failing) == 0 {
			continue
		}
		if s.isHiccup(v1alpha1.ConditionServingReady, going, failingPatience) {
			s.hiccup = true
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

// isHiccup tells whether what goes on is still to be taken for a hiccup: the
// condition was True, and it has gone on for less than patience. Then somebody is
// to look again soon.
func (s *scope) isHiccup(condition string, going streak, patience time.Duration) bool {
	if !s.wasTrue(condition) || going.lasted(s.now) >= patience {
		return false
	}
	s.requeueWithin(soonAgain)
	return true
}

func (s *scope) wasTrue(condition string) bool {
	return slices.ContainsFunc(s.before.Conditions, func(c metav1.Condition) bool {
		return c.Type == condition && c.Status == metav1.ConditionTrue
	})
}
