// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// runs writes a pod of a body: the working set of its container, -1 for none, and what the
// container's and the pod's own CPU counter say now.
func runs(b *strings.Builder, name string, memory, container, pod float64) {
	ms := time.Now().UnixMilli()
	if memory >= 0 {
		labels := fmt.Sprintf(`{container="app",namespace="shop",pod=%q}`, name)
		fmt.Fprintf(b, "container_cpu_usage_seconds_total%s %v %d\ncontainer_memory_working_set_bytes%s %v %d\n", labels, container, ms, labels, memory, ms)
	}
	fmt.Fprintf(b, "pod_cpu_usage_seconds_total{namespace=\"shop\",pod=%q} %v %d\n", name, pod, ms)
}

// crashLoop writes pods whose container runs for 20 s and then waits for 5 minutes.
func crashLoop(b *strings.Builder, at time.Duration) {
	const period, run = 320 * time.Second, 20 * time.Second
	cpu, memory := float64(at/period), -1.0
	if at%period < run {
		memory = 1e7
	}
	for i := range 8 {
		runs(b, fmt.Sprint("web-", i), memory, min(at%period, run).Seconds()/20, 41+cpu+min(at%period, run).Seconds()/20)
	}
}

// TestPodsWithoutMetrics: a node is healthy if most pods that run have metrics. A lack is counted
// when it has lasted, and only of pods that run by what the kubelet says.
func TestPodsWithoutMetrics(t *testing.T) {
	// pods writes the pods of a body that comes at a time after the start.
	tests := map[string]struct {
		pods func(b *strings.Builder, at time.Duration)
		// interval is 15 s if unset. What is after 2 and 10 minutes below comes later in proportion.
		interval time.Duration
		// failed, count: the node failed, and pods without metrics were counted, after 2 and after 10 minutes.
		failed [2]bool
		count  [2]int
	}{
		"all have": {pods: func(b *strings.Builder, at time.Duration) {
			for i := range 8 {
				runs(b, fmt.Sprint("web-", i), 1e7, 40+at.Seconds()/20, 41+at.Seconds()/20)
			}
		}},
		"the runtime says that they have no memory": {failed: [2]bool{false, true}, count: [2]int{0, 8}, pods: func(b *strings.Builder, at time.Duration) {
			for i := range 8 {
				runs(b, fmt.Sprint("web-", i), 0, 40+at.Seconds()/20, 41+at.Seconds()/20)
			}
		}},
		"the runtime names no container": {failed: [2]bool{false, true}, count: [2]int{0, 8}, pods: func(b *strings.Builder, at time.Duration) {
			for i := range 8 {
				runs(b, fmt.Sprint("web-", i), -1, 0, 41+at.Seconds()/20)
			}
		}},
		"the runtime reports only zeros": {failed: [2]bool{false, true}, count: [2]int{0, 8}, pods: func(b *strings.Builder, at time.Duration) {
			for i := range 8 {
				runs(b, fmt.Sprint("web-", i), 0, 0, 41+at.Seconds()/20)
			}
		}},
		"the containers' figures stay, without memory": {failed: [2]bool{false, true}, count: [2]int{0, 8}, pods: func(b *strings.Builder, at time.Duration) {
			for i := range 8 {
				runs(b, fmt.Sprint("web-", i), 0, 40, 41+at.Seconds()/20)
			}
		}},
		"half of them": {failed: [2]bool{false, true}, count: [2]int{0, 2}, pods: func(b *strings.Builder, at time.Duration) {
			for i := range 4 {
				runs(b, fmt.Sprint("web-", i), float64(i%2*2-1)*1e7, 40+at.Seconds()/20, 41+at.Seconds()/20)
			}
		}},
		"one of four": {count: [2]int{0, 1}, pods: func(b *strings.Builder, at time.Duration) {
			for i := range 4 {
				runs(b, fmt.Sprint("web-", i), float64(min(i, 1))*1e7, 40+at.Seconds()/20, 41+at.Seconds()/20)
			}
		}},
		"until it is mended": {pods: func(b *strings.Builder, at time.Duration) {
			runs(b, "web-0", float64(at/(5*time.Minute))*1e7, 40+at.Seconds()/20, 41+at.Seconds()/20)
		}},
		// Their containers wait for an image, or for the next try after a crash: only the sandbox is there.
		"no container runs": {pods: func(b *strings.Builder, at time.Duration) {
			for i := range 8 {
				runs(b, fmt.Sprint("web-", i), -1, 0, 41+float64(at/(2*time.Minute)))
			}
		}},
		"they crash at once, and scrapes are rarer than starts": {interval: 10 * time.Minute, pods: crashLoop},
		"they crash at once": {pods: crashLoop},
		"each pod ends within a minute": {pods: func(b *strings.Builder, at time.Duration) {
			for i := range 8 {
				runs(b, fmt.Sprintf("job-%d-%d", i, at/time.Minute), -1, 0, 1+(at%time.Minute).Seconds()/20)
			}
		}},
		"all have ended": {pods: func(b *strings.Builder, _ time.Duration) { runs(b, "job", 0, 40, 41) }},
		"no pod":         {pods: func(*strings.Builder, time.Duration) {}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, certificate tls.Certificate) {
				start := time.Now()
				settings := testSettings()
				scale := int(max(tt.interval, settings.Interval) / settings.Interval)
				settings.Interval *= time.Duration(scale)
				f := newBubble(t, settings, certificate, func(_ string, w http.ResponseWriter, _ *http.Request) {
					var b strings.Builder
					at := time.Since(start)
					fmt.Fprintf(&b, "node_cpu_usage_seconds_total %v %d\nnode_memory_working_set_bytes 5e+09\n", 1000+at.Seconds(), time.Now().UnixMilli())
					tt.pods(&b, at)
					_, _ = io.WriteString(w, b.String())
				})
				f.add(1)
				for i, wait := range []time.Duration{2 * time.Minute, 8 * time.Minute} {
					time.Sleep(wait * time.Duration(scale))
					synctest.Wait()
					report := f.source.Report()
					want := v1alpha1.KubeletReport{Nodes: 1, Healthy: 1, NewestSample: report.NewestSample, PodsWithoutMetrics: tt.count[i]}
					if tt.count[i] > 0 {
						want.NodesWithoutPodMetrics = []string{"n000"}
					}
					if tt.failed[i] {
						want.Healthy = 0
						want.Failures = []v1alpha1.KubeletFailure{{Reason: v1alpha1.ScrapePodsWithoutMetrics, Count: 1, Nodes: []string{"n000"}}}
					}
					for j := range report.Failures {
						if m := report.Failures[j].Message; !strings.Contains(m, fmt.Sprintf("%d of ", tt.count[i])) {
							t.Errorf("the message %q does not say how many", m)
						}
						report.Failures[j].Message = ""
					}
					if diff := cmp.Diff(want, report); diff != "" {
						t.Errorf("after %s (-want +got):\n%s", time.Since(start), diff)
					}
					if report.NewestSample.Time.Before(time.Now().Add(-settings.Interval - 5*time.Second)) {
						t.Error("the node's own samples got lost")
					}
				}
			})
		})
	}
}

// TestCountPodsWithoutAllocations: pods that lack metrics for long cost no allocation per scrape.
func TestCountPodsWithoutAllocations(t *testing.T) {
	var b strings.Builder
	for i := range 50 {
		runs(&b, fmt.Sprint("web-", i), float64(i%10-1), 40, 41)
	}
	var state nodeState
	body, w, now, with := []byte(b.String()), new(workspace), time.Now().UnixMilli(), 0
	scrape := func() {
		p := parser{state: &state, now: now}
		state.begin()
		p.lines(body)
		state.commit()
		state.points("n1", rateRulesFor(15*time.Second), w, &p.stats)
		with, _ = state.countPods(now, now)
	}
	scrape()
	scrape()
	if !state.missing.parse || len(state.missing.without) == 0 || with != 0 {
		t.Fatalf("%+v, %d with metrics: nothing is measured", state.missing, with)
	}
	if n := testing.AllocsPerRun(20, scrape); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestHealthyPodsAreOnlyCounted: the pods' own counters of a node whose pods have metrics are not parsed.
func TestHealthyPodsAreOnlyCounted(t *testing.T) {
	var state nodeState
	for i := range 2 {
		at := float64(15 * i)
		body := answers(says("web", 100+at, at)).text() + "pod_cpu_usage_seconds_total{namespace=\"n\",pod=\"p\"} 1\n"
		scrapeText(t, &state, body, at, false)
		if with, _ := state.countPods(0, 0); state.missing.parse != (with == 0) || with != i {
			t.Errorf("body %d: %d pods with metrics, parse: %v", i, with, state.missing.parse)
		}
	}
}

// TestManyPodsWithoutMetrics: what a node makes us remember is bounded.
func TestManyPodsWithoutMetrics(t *testing.T) {
	var b strings.Builder
	for i := range 2 * maxWithoutMetrics {
		runs(&b, fmt.Sprint("pod-", i), -1, 0, 41)
	}
	var state nodeState
	for range 3 {
		scrapeText(t, &state, b.String(), 0, false)
		state.countPods(0, 0)
	}
	if n := len(state.missing.without); n != maxWithoutMetrics {
		t.Errorf("%d pods are remembered, want %d", n, maxWithoutMetrics)
	}
}
