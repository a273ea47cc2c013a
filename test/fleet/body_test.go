// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
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
	const counter, gauge = dto.MetricType_COUNTER, dto.MetricType_GAUGE
	want := map[string]dto.MetricType{
		"container_cpu_usage_seconds_total":  counter,
		"container_memory_working_set_bytes": gauge,
		"container_start_time_seconds":       gauge,
		"container_swap_limit_bytes":         gauge,
		"container_swap_usage_bytes":         gauge,
		"node_cpu_usage_seconds_total":       counter,
		"node_memory_working_set_bytes":      gauge,
		"node_swap_usage_bytes":              gauge,
		"pod_cpu_usage_seconds_total":        counter,
		"pod_memory_working_set_bytes":       gauge,
		"pod_swap_usage_bytes":               gauge,
		"resource_scrape_error":              gauge,
	}
	f, _ := newFleet(t, Options{ContainersPerPod: 5})
	body := f.Nodes()[0].AppendBody(nil, epoch)
	parsed := parse(t, body)
	got := map[string]dto.MetricType{}
	for name, family := range parsed {
		got[name] = family.GetType()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("families (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(encode(t, parsed), string(body)); diff != "" {
		t.Errorf("the body differs from what the encoder makes of it (-encoder +body):\n%s", diff)
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
	f, _ := newFleet(t, Options{Nodes: 3, Seed: 7})
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
			for _, c := range p.Containers {
				check("container_cpu_usage_seconds_total", c.Name+"/"+key, c.CPU)
				check("container_memory_working_set_bytes", c.Name+"/"+key, whole(c.Memory))
				check("container_start_time_seconds", c.Name+"/"+key, func(time.Time) float64 {
					return float64(c.Start.UnixNano()) / 1e9
				})
			}
		}
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

func TestCountsAreNotNegative(t *testing.T) {
	for _, options := range []Options{{Nodes: -1}, {PodsPerNode: -1}, {ContainersPerPod: -1}, {Namespaces: -1}} {
		if _, err := New(options); err == nil || !strings.Contains(err.Error(), "counts must not be negative") {
			t.Errorf("New(%+v): error %v", options, err)
		}
	}
}

func BenchmarkBody(b *testing.B) {
	f, _ := newFleet(b, Options{})
	n := f.Nodes()[0]
	body := n.AppendBody(nil, epoch)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	at := epoch
	for b.Loop() {
		at = at.Add(time.Second)
		body = n.AppendBody(body[:0], at)
	}
}
