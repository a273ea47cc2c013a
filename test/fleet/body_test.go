// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	clocktesting "k8s.io/utils/clock/testing"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newFleet with a clock that stands at the epoch.
func newFleet(t testing.TB, o Options) (*Fleet, *clocktesting.FakeClock) {
	t.Helper()
	clock := clocktesting.NewFakeClock(epoch)
	o.Clock = clock
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return f, clock
}

func parse(t *testing.T, body []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("the body does not parse: %v", err)
	}
	return parsed
}

func names(parsed map[string]*dto.MetricFamily) []string {
	var names []string
	for name := range parsed {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// encode as a kubelet does: families by name, series by label values, and the
// encoder that promhttp uses.
func encode(t *testing.T, parsed map[string]*dto.MetricFamily) string {
	t.Helper()
	var out bytes.Buffer
	for _, name := range names(parsed) {
		slices.SortStableFunc(parsed[name].Metric, func(a, b *dto.Metric) int {
			for i := range a.Label {
				if c := strings.Compare(a.Label[i].GetValue(), b.Label[i].GetValue()); c != 0 {
					return c
				}
			}
			return 0
		})
		if _, err := expfmt.MetricFamilyToText(&out, parsed[name]); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func TestBodyIsWhatAKubeletEncodes(t *testing.T) {
	all := []string{
		"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_start_time_seconds",
		"container_swap_limit_bytes", "container_swap_usage_bytes",
		"node_cpu_usage_seconds_total", "node_memory_working_set_bytes", "node_swap_usage_bytes",
		"pod_cpu_usage_seconds_total", "pod_memory_working_set_bytes", "pod_swap_usage_bytes", "resource_scrape_error",
	}
	without := func(part string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return strings.Contains(name, part) })
	}
	for name, test := range map[string]struct {
		options  Options
		families []string
	}{
		"idle swap":            {options: Options{}, families: all},
		"swap in use":          {options: Options{Swap: SwapUsed}, families: all},
		"no swap accounting":   {options: Options{Swap: SwapAbsent}, families: without("swap")},
		"five containers each": {options: Options{ContainersPerPod: 5, PodsPerNode: 3}, families: all},
		"an empty node": {options: Options{PodsPerNode: -1}, families: []string{
			"node_cpu_usage_seconds_total", "node_memory_working_set_bytes", "node_swap_usage_bytes", "resource_scrape_error",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFleet(t, test.options)
			body := f.Nodes()[0].AppendBody(nil, epoch)
			parsed := parse(t, body)
			if diff := cmp.Diff(test.families, names(parsed)); diff != "" {
				t.Errorf("families (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(encode(t, parsed), string(body)); diff != "" {
				t.Errorf("the body differs from what the encoder makes of it (-encoder +body):\n%s", diff)
			}
		})
	}
}

func TestHelpAndTypeOfEachFamily(t *testing.T) {
	f, _ := newFleet(t, Options{PodsPerNode: 1, ContainersPerPod: 1})
	var comments []string
	for line := range strings.Lines(string(f.Nodes()[0].AppendBody(nil, epoch))) {
		if strings.HasPrefix(line, "#") && !strings.Contains(line, "swap") {
			comments = append(comments, strings.TrimSpace(line))
		}
	}
	want := []string{
		"# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in core-seconds",
		"# TYPE container_cpu_usage_seconds_total counter",
		"# HELP container_memory_working_set_bytes [STABLE] Current working set of the container in bytes",
		"# TYPE container_memory_working_set_bytes gauge",
		"# HELP container_start_time_seconds [STABLE] Start time of the container since unix epoch in seconds",
		"# TYPE container_start_time_seconds gauge",
		"# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds",
		"# TYPE node_cpu_usage_seconds_total counter",
		"# HELP node_memory_working_set_bytes [STABLE] Current working set of the node in bytes",
		"# TYPE node_memory_working_set_bytes gauge",
		"# HELP pod_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the pod in core-seconds",
		"# TYPE pod_cpu_usage_seconds_total counter",
		"# HELP pod_memory_working_set_bytes [STABLE] Current working set of the pod in bytes",
		"# TYPE pod_memory_working_set_bytes gauge",
		"# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
		"# TYPE resource_scrape_error gauge",
	}
	if diff := cmp.Diff(want, comments); diff != "" {
		t.Errorf("comments (-want +got):\n%s", diff)
	}
}

// series of a family, by label values in the order of the label names.
func series(parsed map[string]*dto.MetricFamily, family string) map[string]*dto.Metric {
	byLabels := map[string]*dto.Metric{}
	for _, m := range parsed[family].GetMetric() {
		var values []string
		for _, label := range m.Label {
			values = append(values, label.GetValue())
		}
		byLabels[strings.Join(values, "/")] = m
	}
	return byLabels
}

func value(m *dto.Metric) float64 {
	if m.Counter != nil {
		return m.Counter.GetValue()
	}
	return m.Gauge.GetValue()
}

func TestEachSampleIsTheTruthAtItsTimestamp(t *testing.T) {
	f, _ := newFleet(t, Options{Nodes: 3, Seed: 7, Swap: SwapUsed})
	swapped := 0
	for _, n := range f.Nodes() {
		at := epoch.Add(47 * time.Second)
		parsed := parse(t, n.AppendBody(nil, at))
		check := func(family, labels string, want func(time.Time) float64) {
			t.Helper()
			m := series(parsed, family)[labels]
			if m == nil {
				t.Fatalf("%s: no series %s of %s", n.Name, family, labels)
			}
			sampled := time.UnixMilli(m.GetTimestampMs())
			if got := value(m); got != want(sampled) {
				t.Errorf("%s of %s at %v: %v, want %v", family, labels, sampled, got, want(sampled))
			}
		}
		whole := func(of func(time.Time) uint64) func(time.Time) float64 {
			return func(t time.Time) float64 { return float64(of(t)) }
		}
		check("node_cpu_usage_seconds_total", "", n.CPU)
		check("node_memory_working_set_bytes", "", whole(n.Memory))
		for _, p := range n.Pods() {
			key := p.Namespace + "/" + p.Name
			check("pod_cpu_usage_seconds_total", key, p.CPU)
			check("pod_memory_working_set_bytes", key, whole(p.Memory))
			check("pod_swap_usage_bytes", key, whole(p.SwapUsage))
			for _, c := range p.Containers {
				check("container_cpu_usage_seconds_total", c.Name+"/"+key, c.CPU)
				check("container_memory_working_set_bytes", c.Name+"/"+key, whole(c.Memory))
				check("container_swap_usage_bytes", c.Name+"/"+key, whole(c.SwapUsage))
				check("container_start_time_seconds", c.Name+"/"+key, func(time.Time) float64 {
					return float64(c.Start.UnixNano()) / 1e9
				})
				if c.SwapUsage(at) > 0 {
					swapped++
				}
			}
		}
	}
	if swapped == 0 {
		t.Error("no container swaps")
	}
}

// A scraper's rate over two scrapes is the mean of the true load in between.
func TestRatesAreTheLoad(t *testing.T) {
	f, _ := newFleet(t, Options{Seed: 3})
	n := f.Nodes()[0]
	first := series(parse(t, n.AppendBody(nil, epoch)), "container_cpu_usage_seconds_total")
	second := series(parse(t, n.AppendBody(nil, epoch.Add(time.Minute))), "container_cpu_usage_seconds_total")
	for _, p := range n.Pods() {
		for _, c := range p.Containers {
			labels := c.Name + "/" + p.Namespace + "/" + p.Name
			from, to := first[labels], second[labels]
			window := float64(to.GetTimestampMs()-from.GetTimestampMs()) / 1000
			rate := (value(to) - value(from)) / window
			// The mean of the load, by Simpson's rule in steps of 100 ms or less.
			const steps = 1200
			width := time.Duration(window / steps * float64(time.Second))
			mean := 0.0
			for i := range steps + 1 {
				weight := []float64{2, 4}[i%2]
				if i == 0 || i == steps {
					weight = 1
				}
				mean += weight * c.Cores(time.UnixMilli(from.GetTimestampMs()).Add(time.Duration(i)*width)) / (3 * steps)
			}
			if math.Abs(rate-mean) > 1e-6 {
				t.Errorf("%s: rate %v, mean load %v", labels, rate, mean)
			}
		}
	}
}

func TestCountersNeverFallAndSamplesNeverAge(t *testing.T) {
	f, _ := newFleet(t, Options{Seed: 11, PodsPerNode: 10})
	n := f.Nodes()[0]
	last := map[string]*dto.Metric{}
	changed := 0
	for at := epoch; at.Before(epoch.Add(10 * time.Minute)); at = at.Add(1700 * time.Millisecond) {
		parsed := parse(t, n.AppendBody(nil, at))
		for _, family := range []string{"container_cpu_usage_seconds_total", "pod_cpu_usage_seconds_total", "node_cpu_usage_seconds_total"} {
			for labels, m := range series(parsed, family) {
				key := family + labels
				if before := last[key]; before != nil {
					switch elapsed := m.GetTimestampMs() - before.GetTimestampMs(); {
					case elapsed < 0:
						t.Fatalf("%s: the sample at %v is older than the one before", key, at)
					case elapsed == 0 && value(m) != value(before):
						t.Fatalf("%s: two values for one timestamp", key)
					case elapsed > 0 && value(m) <= value(before):
						t.Fatalf("%s: %v after %v", key, value(m), value(before))
					case elapsed > 0:
						changed++
					}
				}
				last[key] = m
			}
		}
	}
	if changed == 0 {
		t.Error("no sample was ever renewed")
	}
}

func TestValuesFollowFromTheSeed(t *testing.T) {
	body := func(seed uint64) string {
		f, _ := newFleet(t, Options{Nodes: 2, Seed: seed})
		return string(f.Nodes()[1].AppendBody(nil, epoch.Add(time.Hour)))
	}
	if diff := cmp.Diff(body(5), body(5)); diff != "" {
		t.Errorf("one seed, two bodies:\n%s", diff)
	}
	if body(5) == body(6) {
		t.Error("two seeds, one body")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		options Options
		want    string
	}{
		"negative nodes":      {Options{Nodes: -1}, "counts must not be negative"},
		"a period too short":  {Options{Period: time.Millisecond}, "must be at least 1s"},
		"an unknown swap":     {Options{Swap: "some"}, `swap "some"`},
		"any address":         {Options{IP: "0.0.0.0"}, "must be one IP"},
		"a name for address":  {Options{IP: "localhost"}, "must be one IP"},
		"too many addresses":  {Options{Nodes: 1<<22 + 1, IPPerNode: true}, "has room for"},
		"negative namespaces": {Options{Namespaces: -2}, "counts must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(test.options); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that contains %q", err, test.want)
			}
		})
	}
}

func BenchmarkBody(b *testing.B) {
	for _, size := range []struct{ pods, containers int }{{30, 2}, {110, 2}} {
		for _, swap := range []Swap{SwapAbsent, SwapIdle} {
			b.Run(fmt.Sprintf("pods=%d/containers=%d/swap=%s", size.pods, size.containers, swap), func(b *testing.B) {
				f, _ := newFleet(b, Options{PodsPerNode: size.pods, ContainersPerPod: size.containers, Swap: swap})
				n := f.Nodes()[0]
				body := n.AppendBody(nil, epoch)
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				at := epoch
				for b.Loop() {
					at = at.Add(time.Second)
					body = n.AppendBody(body[:0], at)
				}
			})
		}
	}
}
