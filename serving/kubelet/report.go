// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// reportedNames bounds the names that are reported of one kind of failure.
	reportedNames = 5
	// primedPercent of the reachable nodes must have two samples.
	primedPercent = 95
)

// Report sums up the newest scrape of each selected node.
func (s *Source) Report() v1alpha1.KubeletReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	report := v1alpha1.KubeletReport{Nodes: len(s.targets)}
	failed := map[v1alpha1.ScrapeReason][]*target{}
	for _, t := range s.targets {
		switch {
		case !t.asked:
			report.Pending++
		case t.failed == "":
			report.Healthy++
		default:
			failed[t.failed] = append(failed[t.failed], t)
		}
		if t.nodeSample && t.sample.After(report.NewestSample.Time) {
			report.NewestSample = metav1.NewTime(t.sample)
		}
	}
	for reason, targets := range failed {
		slices.SortFunc(targets, func(a, b *target) int { return cmp.Compare(a.name, b.name) })
		failure := v1alpha1.KubeletFailure{Reason: reason, Count: len(targets), Message: targets[0].message}
		for _, t := range targets[:min(len(targets), reportedNames)] {
			failure.Nodes = append(failure.Nodes, t.name)
		}
		report.Failures = append(report.Failures, failure)
	}
	slices.SortFunc(report.Failures, func(a, b v1alpha1.KubeletFailure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return report
}

// Primed says whether the source has rates: two distinct samples of 95 % of the
// reachable selected nodes. A node is reachable unless its newest scrape failed
// before it had two samples. Without any selected node the source is primed;
// with some of which none is reachable it is not, as another replica, which
// serves now, may reach them. The string gives the counts.
func (s *Source) Primed() (bool, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	primed, unreachable := 0, 0
	for _, t := range s.targets {
		switch {
		case t.renewals >= 2:
			primed++
		case t.failed != "":
			unreachable++
		}
	}
	reachable := len(s.targets) - unreachable
	counts := fmt.Sprintf("%d of %d reachable nodes have two samples (%d %% needed), %d unreachable", primed, reachable, primedPercent, unreachable)
	switch {
	case len(s.targets) == 0:
		return true, "no node is selected"
	case reachable == 0:
		return false, counts
	}
	return primed*100 >= reachable*primedPercent, counts
}
