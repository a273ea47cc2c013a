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
	// reportedNames bounds the names of nodes that are reported for a reason.
	reportedNames = 5
	// ratesPercent is the share of the reachable nodes that must have rates.
	ratesPercent = 95
)

// Report summarizes the newest scrape of each selected node.
func (s *Source) Report() v1alpha1.KubeletReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	report := v1alpha1.KubeletReport{Nodes: len(s.targets)}
	points, without := s.store.Pods.Swept()
	report.PodPoints = points
	due := s.clock.Now().Add(-metricsDue(s.settings.Interval))
	failed := map[v1alpha1.ScrapeReason][]*target{}
	for _, t := range s.targets {
		verified, pinned, expires := t.connection.trust(s.settings.kubeletTLS)
		if verified {
			report.Verified++
		}
		if pinned {
			report.Pinned++
		}
		if pinned && s.settings.TLS == v1alpha1.KubeletTLSVerifyOrPin && expires.Sub(s.clock.Now()) < expiresSoon {
			report.Expiring++
		}
		switch {
		case !t.scraped:
			report.Pending++
		case t.failed == "":
			report.Healthy++
			if !t.firstSuccess.After(due) {
				report.PodsWithoutPoint = without // pods may still be new to other kubelets, but not to all
			}
		default:
			failed[t.failed] = append(failed[t.failed], t)
		}
		if t.podsWithoutMetrics > 0 {
			report.PodsWithoutMetrics += t.podsWithoutMetrics
			report.NodesWithoutPodMetrics = append(report.NodesWithoutPodMetrics, t.name)
		}
		if t.nodeSample && t.sample.After(report.NewestSample.Time) {
			report.NewestSample = metav1.NewTime(t.sample)
		}
	}
	slices.Sort(report.NodesWithoutPodMetrics)
	report.NodesWithoutPodMetrics = report.NodesWithoutPodMetrics[:min(len(report.NodesWithoutPodMetrics), reportedNames)]
	for reason, targets := range failed {
		slices.SortFunc(targets, func(a, b *target) int { return cmp.Compare(a.name, b.name) })
		failure := v1alpha1.KubeletFailure{Reason: reason, Count: len(targets), Message: targets[0].message}
		for _, t := range targets[:min(len(targets), reportedNames)] {
			failure.Nodes = append(failure.Nodes, t.name)
			if reason == v1alpha1.ScrapeStaleSamples {
				failure.SampleAges = append(failure.SampleAges, metav1.Duration{Duration: t.sampleAge})
			}
		}
		report.Failures = append(report.Failures, failure)
	}
	slices.SortFunc(report.Failures, func(a, b v1alpha1.KubeletFailure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	return report
}

// HasRates reports whether the source has rates of 95 % of the reachable nodes and of
// all their pods, but does not wait for a node's pods longer than warmUpTime: without
// them, lists would lack pods that other replicas serve. A node is unreachable if its
// newest scrape failed before it had two samples. The result is true if no node is selected, and false if none is
// reachable, since the replica that serves now may reach them. The string has the
// counts.
func (s *Source) HasRates() (bool, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	withRates, unreachable, now := 0, 0, s.clock.Now()
	for _, t := range s.targets {
		switch {
		case t.samples >= 2 && (!t.incomplete || now.Sub(t.firstSuccess) >= warmUpTime):
			withRates++
		case t.samples < 2 && t.failed != "":
			unreachable++
		}
	}
	reachable := len(s.targets) - unreachable
	counts := fmt.Sprintf("%d of %d reachable nodes have rates of all their pods (%d %% needed), %d unreachable", withRates, reachable, ratesPercent, unreachable)
	switch {
	case len(s.targets) == 0:
		return true, "no node is selected"
	case reachable == 0:
		return false, counts
	}
	return withRates*100 >= reachable*ratesPercent, counts
}
