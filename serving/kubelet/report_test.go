// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// history has the outcomes of a node's scrapes, oldest first: the time of the sample
// in seconds after epoch, or the reason of a failure.
type history []any

const staleAge = 10 * time.Minute

// nodesWith returns a source whose nodes n00, n01, … have the histories.
func nodesWith(t *testing.T, histories ...history) *Source {
	t.Helper()
	cfg := testSettings()
	cfg.TLS = v1alpha1.KubeletTLSInsecureSkipTLSVerify
	s := newTestSource(t, clocktesting.NewFakeClock(epoch), nil, nil, cfg)
	for i, h := range histories {
		name := fmt.Sprintf("n%02d", i)
		s.SetNode(testNode(name, "192.0.2.1"))
		for _, came := range h {
			o := &scrapeResult{start: epoch, url: "https://192.0.2.1:10250/metrics/resource"}
			switch came := came.(type) {
			case int:
				o.sample, o.nodeSample = sec(float64(came)), true
			case v1alpha1.ScrapeReason:
				o.failure = failf(came, "it was %s", came)
				if came == v1alpha1.ScrapeStaleSamples {
					o.failure.sampleAge = staleAge
				}
				if came == v1alpha1.ScrapePodsWithoutMetrics {
					o.podsWithoutMetrics = 7
				}
			}
			s.mu.Lock()
			s.unqueue(s.targets[name])
			s.recordResult(s.targets[name], o)
			s.schedule(s.targets[name], epoch)
			s.mu.Unlock()
		}
	}
	return s
}

func TestReport(t *testing.T) {
	const denied, hangs = v1alpha1.ScrapeForbidden, v1alpha1.ScrapeTimeout
	message := func(node string, reason v1alpha1.ScrapeReason) string {
		return fmt.Sprintf("node %s at https://192.0.2.1:10250/metrics/resource: it was %s", node, reason)
	}
	many := make([]history, 7)
	for i := range many {
		many[i] = history{hangs}
	}
	tests := map[string]struct {
		nodes []history
		want  v1alpha1.KubeletReport
	}{
		"none": {nil, v1alpha1.KubeletReport{}},
		"healthy and pending": {[]history{{1, 9}, {}, {5}}, v1alpha1.KubeletReport{
			Nodes: 3, Healthy: 2, Pending: 1, NewestSample: metav1.NewTime(sec(9)),
		}},
		"the newest scrape counts": {[]history{{1, denied}, {denied, 2}}, v1alpha1.KubeletReport{
			Nodes: 2, Healthy: 1, NewestSample: metav1.NewTime(sec(2)),
			Failures: []v1alpha1.KubeletFailure{{Reason: denied, Count: 1, Nodes: []string{"n00"}, Message: message("n00", denied)}},
		}},
		"most nodes first, then by reason": {[]history{{hangs}, {denied}, {hangs}, {v1alpha1.ScrapeBadStatus}}, v1alpha1.KubeletReport{
			Nodes: 4,
			Failures: []v1alpha1.KubeletFailure{
				{Reason: hangs, Count: 2, Nodes: []string{"n00", "n02"}, Message: message("n00", hangs)},
				{Reason: v1alpha1.ScrapeBadStatus, Count: 1, Nodes: []string{"n03"}, Message: message("n03", v1alpha1.ScrapeBadStatus)},
				{Reason: denied, Count: 1, Nodes: []string{"n01"}, Message: message("n01", denied)},
			},
		}},
		"stale samples": {[]history{{v1alpha1.ScrapeStaleSamples}, {3}}, v1alpha1.KubeletReport{
			Nodes: 2, Healthy: 1, NewestSample: metav1.NewTime(sec(3)),
			Failures: []v1alpha1.KubeletFailure{{
				Reason: v1alpha1.ScrapeStaleSamples, Count: 1, Nodes: []string{"n00"}, SampleAges: []metav1.Duration{{Duration: staleAge}},
				Message: message("n00", v1alpha1.ScrapeStaleSamples),
			}},
		}},
		"at most five names": {many, v1alpha1.KubeletReport{
			Nodes:    7,
			Failures: []v1alpha1.KubeletFailure{{Reason: hangs, Count: 7, Nodes: []string{"n00", "n01", "n02", "n03", "n04"}, Message: message("n00", hangs)}},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, nodesWith(t, tt.nodes...).Report()); diff != "" {
				t.Errorf("Report() (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReportOfPodsWithoutPoint: pods are known to lack points once a kubelet has answered for a while, and does.
func TestReportOfPodsWithoutPoint(t *testing.T) {
	s := nodesWith(t, history{1})
	s.store.Pods.SetMeta(samplestore.Key{Namespace: "a", Name: "web"}, &samplestore.Meta{UID: "u"})
	s.store.Pods.Sweep()
	check := func(want int64) {
		t.Helper()
		if got := s.Report().PodsWithoutPoint; got != want {
			t.Errorf("%d pods without point, want %d", got, want)
		}
	}
	check(0)
	s.clock.(*clocktesting.FakeClock).Step(metricsDue(s.settings.Interval))
	check(1)
	s.mu.Lock()
	s.recordResult(s.targets["n00"], &scrapeResult{failure: failf(v1alpha1.ScrapeTimeout, "it hangs")})
	s.mu.Unlock()
	check(0)
}

func TestReportWithoutURL(t *testing.T) {
	s := nodesWith(t, history{})
	s.mu.Lock()
	s.recordResult(s.targets["n00"], &scrapeResult{failure: failf(v1alpha1.ScrapeNoAddress, "it has none")})
	s.mu.Unlock()
	if got, want := s.Report().Failures[0].Message, "node n00: it has none"; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

func TestHasRates(t *testing.T) {
	const denied = v1alpha1.ScrapeForbidden
	nodes := func(n int, h history, more ...history) []history {
		for range n {
			more = append(more, h)
		}
		return more
	}
	tests := map[string]struct {
		nodes  []history
		want   bool
		counts string
	}{
		"no node":                                {nil, true, "no node is selected"},
		"not scraped yet":                        {[]history{{}}, false, "0 of 1 reachable"},
		"one sample":                             {[]history{{1}}, false, "0 of 1 reachable"},
		"the same sample again":                  {[]history{{1, 1, 1}}, false, "0 of 1 reachable"},
		"two samples":                            {[]history{{1, 11}}, true, "1 of 1 reachable"},
		"two samples around a failure":           {[]history{{1, denied, 11}}, true, "1 of 1 reachable"},
		"a sample and a failure":                 {nodes(1, history{1, 11}, history{1, denied}), true, "1 of 1 reachable nodes have rates of all their pods (95 % needed), 1 unreachable"},
		"two samples, then a failure":            {[]history{{1, 11, denied}}, true, "1 of 1 reachable"},
		"unreachable nodes do not count":         {nodes(3, history{denied}, history{1, 11}), true, "3 unreachable"},
		"only unreachable nodes":                 {nodes(3, history{denied}), false, "0 of 0 reachable nodes have rates of all their pods (95 % needed), 3 unreachable"},
		"95 %":                                   {nodes(19, history{1, 11}, history{1}), true, "19 of 20 reachable"},
		"less than 95 %":                         {nodes(18, history{1, 11}, history{1}), false, "18 of 19 reachable"},
		"nodes that were not scraped yet do not": {nodes(18, history{1, 11}, history{}), false, "18 of 19 reachable"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, counts := nodesWith(t, tt.nodes...).HasRates()
			if got != tt.want || !strings.Contains(counts, tt.counts) {
				t.Errorf("HasRates() = %v, %q, want %v, %q", got, counts, tt.want, tt.counts)
			}
		})
	}
}

// TestHasRatesOfPods: nodes wait for their pods, and not for ever.
func TestHasRatesOfPods(t *testing.T) {
	tests := map[string]struct {
		incomplete bool
		since      time.Duration
		want       bool
	}{
		"complete":                      {false, 0, true},
		"incomplete":                    {true, 0, false},
		"incomplete for long":           {true, warmUpTime - 1, false},
		"incomplete for the whole time": {true, warmUpTime, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := nodesWith(t, history{1, 11})
			target := s.targets["n00"]
			target.incomplete, target.firstSuccess = tt.incomplete, s.clock.Now().Add(-tt.since)
			if got, counts := s.HasRates(); got != tt.want {
				t.Errorf("HasRates() = %t, %q, want %t", got, counts, tt.want)
			}
		})
	}
}

func TestAlive(t *testing.T) {
	s := nodesWith(t, history{1})
	if err := s.Alive(epoch.Add(time.Hour)); err != nil {
		t.Errorf("Alive() before Run = %v", err)
	}
	s.lastRun = epoch
	if err := s.Alive(epoch.Add(stuckAfter)); err != nil {
		t.Errorf("Alive() while it runs = %v", err)
	}
	if err := s.Alive(epoch.Add(stuckAfter + 1)); err == nil || !strings.Contains(err.Error(), "stuck") {
		t.Errorf("Alive() of a scheduler that is stuck = %v", err)
	}
	target := s.targets["n00"]
	target.started, target.timeout, target.cancel = epoch, 10*time.Second, func() {}
	s.lastRun = epoch.Add(10*time.Second + stuckAfter)
	if err := s.Alive(s.lastRun); err != nil {
		t.Errorf("Alive() with a slow scrape = %v", err)
	}
	if err := s.Alive(s.lastRun.Add(time.Second)); err == nil || !strings.Contains(err.Error(), "n00") {
		t.Errorf("Alive() with a scrape that does not end = %v", err)
	}
}
