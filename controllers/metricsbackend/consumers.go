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

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// keepForConsumers tells whether a registered version that is not desired stays
// for now: the spec no longer names it, and clients use it, or not every pod has
// said who does since the spec changed. It then counts as desired: it is probed,
// verified, and its caBundle follows the certificates, as any other's.
//
// Only a removal by spec waits. Pods that do not serve a version, a namespace
// that ends, a conflict and a deletion leave no choice.
func (r *Reconciler) keepForConsumers(ctx context.Context, s *scope, gv schema.GroupVersion) (bool, error) {
	switch {
	case s.withoutNamespace, !s.deploys(),
		slices.Contains(desiredVersions(s.spec), gv), // A conflict took it out.
		// Who has it serves its clients, and would have to be written against.
		!s.leadsToServing(s.registered[apiServiceName(gv)]),
		!slices.Contains(manifests.KnownVersions(), gv),
		s.despiteConsumers(gv):
		return false, nil
	}
	asked := s.consumersAsked()
	if asked && len(activeConsumers(s.before.Consumers, gv, s.now)) == 0 {
		return false, nil
	}
	claimed, err := r.claimedByOther(ctx, s, gv)
	if err != nil || claimed {
		return false, err
	}
	known := manifests.KnownVersions()
	s.desired = append(s.desired, gv)
	slices.SortFunc(s.desired, func(a, b schema.GroupVersion) int { return cmp.Compare(slices.Index(known, a), slices.Index(known, b)) })
	s.kept[apiServiceName(gv)] = asked
	return true, nil
}

// consumersAsked tells whether the status that was read holds what the pods said
// since the spec changed.
func (s *scope) consumersAsked() bool {
	c := s.condition(v1alpha1.ConditionConsumersCompatible)
	return c.ObservedGeneration == s.backend.Generation &&
		c.Reason != v1alpha1.ReasonProbeFailed && c.Reason != v1alpha1.ReasonNotYetReported
}

// claimedByOther tells whether another MetricsBackend names the version and waits
// for nothing else: its clients are to be served by that one. One that is not
// ready would leave them without.
func (r *Reconciler) claimedByOther(ctx context.Context, s *scope, gv schema.GroupVersion) (bool, error) {
	others, err := r.otherClaims(ctx, s)
	return slices.ContainsFunc(others, func(other claim) bool {
		return slices.Contains(other.versions, gv) && inherits(other.backend)
	}), err
}

// despiteConsumers tells whether the spec says to remove the version all the same.
func (s *scope) despiteConsumers(gv schema.GroupVersion) bool {
	return slices.Contains(sectionOf(s.spec, gv.Group).forced, gv.Version) ||
		slices.Contains(s.spec.RemoveDespiteConsumers, apiServiceName(gv))
}

// markKept says in StaleAPIServicesRemoved why versions are still registered that
// the spec does not name. It returns errWait until pods were asked once about this
// spec, since a version is retired before anything else changes. Not longer: what
// keeps pods from telling may be what the next phases mend.
func (s *scope) markKept() error {
	reason, why := v1alpha1.ReasonConsumersActive, "kept for its clients, see ConsumersCompatible"
	for _, asked := range s.kept {
		if !asked {
			reason, why = v1alpha1.ReasonRetiring, "to be removed from discovery, once the serving pods have said who uses it"
		}
	}
	s.mark(v1alpha1.ConditionStaleAPIServicesRemoved, metav1.ConditionFalse, reason, strings.Join(s.keptNames(), ", ")+": "+why)
	if s.condition(v1alpha1.ConditionConsumersCompatible).ObservedGeneration != s.backend.Generation {
		return errWait
	}
	return nil
}

func (s *scope) keptNames() []string { return slices.Sorted(maps.Keys(s.kept)) }

// consumers takes up which clients the pods have seen, and judges whether the spec
// takes a version from one of them.
func (r *Reconciler) consumers(_ context.Context, s *scope) error {
	if !s.podsRead && s.deploys() {
		return nil
	}
	status := &s.backend.Status
	status.Consumers = mergeConsumers(s.before.Consumers, s.consumerReports(), s.now)
	s.judgeConsumers()
	for name, asked := range s.kept {
		if !asked && s.consumersAsked() {
			// The decision is made at once.
			s.again()
		}
		if version := s.apiServices[name]; asked && version.Message == "" {
			gv, _ := versionOf(name)
			version.Message = "no longer in " + versionsField(gv) + "; kept for its clients, see ConsumersCompatible"
			s.apiServices[name] = version
		}
	}
	return nil
}

// consumerReports are those of all pods that answered, ending ones too: what they
// saw is lost with them.
func (s *scope) consumerReports() []*v1alpha1.ConsumerReport {
	var reports []*v1alpha1.ConsumerReport
	for _, p := range s.runningPods() {
		if p.answer != nil && p.answer.Consumers != nil {
			reports = append(reports, p.answer.Consumers)
		}
	}
	return reports
}

// judgeConsumers sets ConsumersCompatible.
func (s *scope) judgeConsumers() {
	kept, undecided := s.keptFor()
	forced := s.forcedRemovals()
	silent := s.silentPod()
	status, reason, message := metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "no client uses a version that the spec does not name"
	switch unknown, why := s.consumersUnknown(); {
	case undecided != "" && silent != "":
		status, reason = metav1.ConditionUnknown, v1alpha1.ReasonProbeFailed
		message = fmt.Sprintf("%s. %s stays until every ready pod has said who uses it. To remove it all the same: %s", silent, undecided, s.patchDespite(undecided))
	case len(kept) > 0:
		status, reason, message = metav1.ConditionFalse, v1alpha1.ReasonConsumersActive, strings.Join(kept, " ")
	case len(forced) > 0:
		reason, message = v1alpha1.ReasonRemovalForced, strings.Join(forced, "; ")
	case unknown != "" && s.transient && s.wasTrue(v1alpha1.ConditionConsumersCompatible) &&
		s.condition(v1alpha1.ConditionConsumersCompatible).ObservedGeneration == s.backend.Generation:
		return // A pod did not answer once; what was known stands.
	case unknown != "":
		status, reason, message = metav1.ConditionUnknown, unknown, why
	}
	s.mark(v1alpha1.ConditionConsumersCompatible, status, reason, message)
}

// keptFor tells for whom versions are kept, and the first version that is kept
// although no client of it is known.
func (s *scope) keptFor() (kept []string, undecided string) {
	for _, name := range s.keptNames() {
		gv, _ := versionOf(name)
		users := activeConsumers(s.backend.Status.Consumers, gv, s.now)
		switch {
		case len(users) > 0:
			kept = append(kept, s.describeKept(name, users))
		case undecided == "":
			undecided = name
		}
	}
	return kept, undecided
}

// forcedRemovals tell from whom a version is taken, or was, for as long as they
// are remembered.
func (s *scope) forcedRemovals() []string {
	var forced []string
	for _, gv := range manifests.KnownVersions() {
		if slices.Contains(desiredVersions(s.spec), gv) || !s.despiteConsumers(gv) {
			continue
		}
		if users := activeConsumers(s.backend.Status.Consumers, gv, s.now); len(users) > 0 {
			forced = append(forced, fmt.Sprintf("%s is taken, as removeDespiteConsumers says, from %s",
				apiServiceName(gv), describeConsumers(users)))
		}
	}
	return forced
}

// silentPod tells of a ready pod that should say who uses which version, and did
// not; or is empty.
func (s *scope) silentPod() string {
	for _, p := range s.readyPods() {
		switch {
		case p.answer == nil:
			return fmt.Sprintf("pod %s does not tell who uses which version: it does not answer the operator, see ServingReady", p.Name)
		case p.err != nil:
			return fmt.Sprintf("pod %s does not tell who uses which version: %v", p.Name, p.err)
		case p.answer.ConsumersError != nil:
			return fmt.Sprintf("pod %s does not tell who uses which version: %v", p.Name, p.answer.ConsumersError)
		}
	}
	return ""
}

// consumersUnknown is why nobody tells which clients there are, as a reason and a
// message; empty when a pod does.
func (s *scope) consumersUnknown() (reason, message string) {
	if !s.deploys() {
		return v1alpha1.ReasonConsumersUnknown,
			"the implementation of spec.existing does not tell who uses which version: a version is removed without waiting for its clients"
	}
	answered := false
	for _, p := range s.readyPods() {
		if p.answer == nil {
			continue
		}
		if p.answer.Consumers != nil {
			return "", ""
		}
		// A pod that answered only half was not asked for its clients.
		answered = answered || p.err == nil && p.answer.ConsumersError == nil
	}
	if answered {
		return v1alpha1.ReasonConsumersUnknown,
			"the image of the serving pods is too old to tell who uses which version: a version is removed without waiting for its clients"
	}
	if silent := s.silentPod(); silent != "" {
		return v1alpha1.ReasonProbeFailed, silent
	}
	return v1alpha1.ReasonDependencyNotReady, "no ready serving pod tells who uses which version: see ServingReady"
}

func (s *scope) describeKept(name string, users []v1alpha1.ConsumerStatus) string {
	gv, _ := versionOf(name)
	return fmt.Sprintf("%s is no longer in %s, but was used today or yesterday by %s. "+
		"It stays until a whole day has passed without them. Put it back into the versions, or remove it all the same: %s.",
		name, versionsField(gv), describeConsumers(users), s.patchDespite(name))
}

// patchDespite is the command that removes a version despite its clients. A section
// that the spec no longer has is not brought back for it.
func (s *scope) patchDespite(name string) string {
	gv, _ := versionOf(name)
	patch := fmt.Sprintf(`{"spec":{"removeDespiteConsumers":["%s"]}}`, name)
	if section := sectionOf(s.spec, gv.Group); len(section.versions) > 0 {
		patch = fmt.Sprintf(`{"spec":{"%s":{"removeDespiteConsumers":["%s"]}}}`, section.field, gv.Version)
	}
	return fmt.Sprintf("kubectl patch metricsbackend %s --type=merge -p '%s'", s.backend.Name, patch)
}
