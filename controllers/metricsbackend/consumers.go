// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/reports"
)

// keepForConsumers reports whether a registered version that the spec no longer names
// stays for now: clients use it, or not every pod has reported its clients since the spec
// changed. The version then counts as desired.
//
// Only a removal by spec waits; versions that pods do not serve, whose requests fail, or that
// are contested, or whose previous owner serves what autoscalers read, a namespace that ends, a conflict and a deletion do not.
func (r *Reconciler) keepForConsumers(ctx context.Context, s *reconcileState, v *lifecycle.Version) (bool, error) {
	gv := v.GV
	switch {
	case s.namespace.gone, !s.deploys(),
		slices.Contains(desiredVersions(s.spec), gv), // excluded by a conflict
		// It serves its clients elsewhere, and keeping it would need writes against its
		// owner.
		!s.identity().PointsToPods(s.registered[apiServiceName(gv)]),
		!slices.Contains(manifests.KnownVersions(), gv),
		// Its clients get errors.
		s.isContested(s.registered[apiServiceName(gv)], nil),
		s.history.streaks.Get(stateKey{state: versionUnavailable, name: gv.String()}).Elapsed >= requestGrace,
		s.removalForced(gv):
		return false, nil
	}
	asked := s.consumersAsked()
	if asked && len(reports.ActiveConsumers(s.storedStatus.Consumers, gv, s.now)) == 0 || r.servedByPrevious(ctx, s, v) {
		return false, nil
	}
	// Another MetricsBackend that is not ready would leave its clients without it.
	others, err := otherClaims(ctx, r.APIReader, s)
	if err != nil || slices.ContainsFunc(others, func(other claim) bool {
		return slices.Contains(other.versions, gv) && readyToTakeOver(other.backend)
	}) {
		return false, err
	}
	known := manifests.KnownVersions()
	s.versions.desired = append(s.versions.desired, gv)
	slices.SortFunc(s.versions.desired, func(a, b schema.GroupVersion) int { return cmp.Compare(slices.Index(known, a), slices.Index(known, b)) })
	s.versions.kept[apiServiceName(gv)] = asked
	return true, nil
}

// consumersAsked reports whether the stored status contains the pods' reports since the
// spec changed.
func (s *reconcileState) consumersAsked() bool {
	c := s.condition(v1alpha1.ConditionConsumersCompatible)
	return c.ObservedGeneration == s.backend.Generation &&
		c.Reason != v1alpha1.ReasonProbeFailed && c.Reason != v1alpha1.ReasonNotYetReported
}

// removalForced reports whether the spec removes the version despite its clients.
func (s *reconcileState) removalForced(gv schema.GroupVersion) bool {
	return slices.Contains(s.spec.RemoveDespiteConsumers, apiServiceName(gv))
}

// setKeptCondition sets StaleAPIServicesRemoved for versions that are kept. It returns
// errWait until pods were probed once since the spec changed, since a version is retired
// before anything else changes; not longer, since later phases may repair what keeps pods
// from reporting.
func (s *reconcileState) setKeptCondition() error {
	reason, why := v1alpha1.ReasonConsumersActive, "kept for its clients, see ConsumersCompatible"
	for _, asked := range s.versions.kept {
		if !asked {
			reason, why = v1alpha1.ReasonRetiring, "to be removed from discovery, once the serving pods have said who uses it"
		}
	}
	s.setCondition(v1alpha1.ConditionStaleAPIServicesRemoved, metav1.ConditionFalse, reason, strings.Join(s.keptNames(), ", ")+": "+why)
	if s.condition(v1alpha1.ConditionConsumersCompatible).ObservedGeneration != s.backend.Generation {
		return errWait
	}
	return nil
}

func (s *reconcileState) keptNames() []string { return slices.Sorted(maps.Keys(s.versions.kept)) }

// consumers stores the clients that pods reported and sets ConsumersCompatible.
func (r *Reconciler) consumers(_ context.Context, s *reconcileState) error {
	if !s.rollout.podsRead && s.deploys() {
		return nil
	}
	status := &s.backend.Status
	status.Consumers = reports.MergeConsumers(s.storedStatus.Consumers, s.consumerReports(), s.now)
	s.setConsumersCompatible()
	for name, asked := range s.versions.kept {
		if !asked && s.consumersAsked() {
			// The next pass decides about the version.
			s.requeueNow()
		}
		if version := s.apiServices[name]; asked && version.Message == "" {
			gv, _ := manifests.VersionOf(name)
			version.Message = "no longer in " + versionsField(gv) + "; kept for its clients, see ConsumersCompatible"
			s.apiServices[name] = version
		}
	}
	return nil
}

// consumerReports returns the reports of all running pods. Those of terminating pods are
// lost with them.
func (s *reconcileState) consumerReports() []*v1alpha1.ConsumerReport {
	var all []*v1alpha1.ConsumerReport
	for _, p := range s.runningPods() {
		if p.answer != nil && p.answer.Consumers != nil {
			all = append(all, p.answer.Consumers)
		}
	}
	return all
}

func (s *reconcileState) setConsumersCompatible() {
	kept, names, undecided := s.keptMessages()
	forced := s.forcedRemovals()
	notReporting := s.podNotReporting()
	status, reason, message := metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "no client uses a version that the spec does not name"
	switch unknown, why := s.consumersUnknown(); {
	case undecided != "" && notReporting != "":
		status, reason = metav1.ConditionUnknown, v1alpha1.ReasonProbeFailed
		message = fmt.Sprintf("%s. %s stays until every ready pod has said who uses it. To remove it all the same: %s", notReporting, undecided, s.removalCommand(undecided))
	case len(kept) > 0:
		status, reason = metav1.ConditionFalse, v1alpha1.ReasonConsumersActive
		message = fmt.Sprintf("%s Put back what they need, or remove all the same what is named here: %s", strings.Join(kept, " "), s.removalCommand(names...))
	case len(forced) > 0:
		reason, message = v1alpha1.ReasonRemovalForced, strings.Join(forced, "; ")
	case unknown != "" && s.probed.transient && s.wasTrue(v1alpha1.ConditionConsumersCompatible) &&
		s.condition(v1alpha1.ConditionConsumersCompatible).ObservedGeneration == s.backend.Generation:
		return // keep the known result
	case unknown != "":
		status, reason, message = metav1.ConditionUnknown, unknown, why
	}
	s.setCondition(v1alpha1.ConditionConsumersCompatible, status, reason, message)
}

// keptMessages returns a message for each version kept for known clients, the names of these
// versions, and the first version that is kept although no client is known.
func (s *reconcileState) keptMessages() (kept, names []string, undecided string) {
	for _, name := range s.keptNames() {
		gv, _ := manifests.VersionOf(name)
		users := reports.ActiveConsumers(s.backend.Status.Consumers, gv, s.now)
		switch {
		case len(users) > 0:
			kept = append(kept, fmt.Sprintf("%s is no longer in %s, but was used today or yesterday by %s. "+
				"It stays until a whole day has passed without them.",
				name, versionsField(gv), reports.DescribeConsumers(users)))
			names = append(names, name)
		case undecided == "":
			undecided = name
		}
	}
	return kept, names, undecided
}

// forcedRemovals returns a message for each version that is removed despite active
// clients.
func (s *reconcileState) forcedRemovals() []string {
	var forced []string
	for _, gv := range manifests.KnownVersions() {
		if slices.Contains(desiredVersions(s.spec), gv) || !s.removalForced(gv) {
			continue
		}
		if users := reports.ActiveConsumers(s.backend.Status.Consumers, gv, s.now); len(users) > 0 {
			forced = append(forced, fmt.Sprintf("%s is removed, as removeDespiteConsumers says, although used by %s",
				apiServiceName(gv), reports.DescribeConsumers(users)))
		}
	}
	return forced
}

// podNotReporting describes a ready pod that did not report its clients, or returns "".
func (s *reconcileState) podNotReporting() string {
	for _, p := range s.rollout.pods.ready() {
		switch {
		case p.answer == nil:
			return fmt.Sprintf("pod %s does not tell who uses which version: it does not answer the operator, see ServingReady", p.Name)
		case p.err != nil || p.answer.ConsumersError != nil:
			return fmt.Sprintf("pod %s does not tell who uses which version: %v", p.Name, cmp.Or(p.err, p.answer.ConsumersError))
		}
	}
	return ""
}

// consumersUnknown returns why no pod reports clients, as reason and message, or "" if
// one does.
func (s *reconcileState) consumersUnknown() (reason, message string) {
	if !s.deploys() {
		return v1alpha1.ReasonConsumersUnknown,
			"the implementation of spec.existing does not tell who uses which version: a version is removed without waiting for its clients"
	}
	if slices.ContainsFunc(s.rollout.pods.ready(), func(p pod) bool { return p.answer != nil && p.answer.Consumers != nil }) {
		return "", ""
	}
	if notReporting := s.podNotReporting(); notReporting != "" {
		return v1alpha1.ReasonProbeFailed, notReporting
	}
	return v1alpha1.ReasonDependencyNotReady, "no ready serving pod tells who uses which version: see ServingReady"
}

// removalCommand returns the command that removes versions despite their clients. It replaces the list.
func (s *reconcileState) removalCommand(names ...string) string {
	all := sets.List(sets.New(s.spec.RemoveDespiteConsumers...).Insert(names...))
	return fmt.Sprintf(`kubectl patch metricsbackend %s --type=merge -p '{"spec":{"removeDespiteConsumers":["%s"]}}'`, s.backend.Name, strings.Join(all, `","`))
}
