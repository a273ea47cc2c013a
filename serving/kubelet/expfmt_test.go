// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The reference is Prometheus' own parser of the exposition format.

// textSample is one sample of a body.
type textSample struct {
	Family, Labels string
	Value          float64
	Time           int64
}

func compareSamples(a, b textSample) int {
	return strings.Compare(a.Family+a.Labels, b.Family+b.Labels)
}

// reference parses a body with expfmt and returns the samples that parse.go should
// find in it.
func reference(body string) ([]textSample, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	found, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	var all []textSample
	for name, f := range found {
		family := familyOf([]byte(name))
		if family == familyOther || family == scrapeError || family == podCPU {
			continue
		}
		seen := map[string]bool{}
		for _, m := range f.GetMetric() {
			s := textSample{Family: name, Value: metricValue(m), Time: now}
			if m.TimestampMs != nil {
				s.Time = m.GetTimestampMs()
			}
			if strings.HasPrefix(name, "container_") {
				labels := map[string]string{}
				for _, label := range m.GetLabel() {
					labels[label.GetName()] = label.GetValue()
				}
				if !validName([]byte(labels["namespace"])) || !validName([]byte(labels["pod"])) || !validName([]byte(labels["container"])) {
					continue
				}
				s.Labels = labels["namespace"] + "/" + labels["pod"] + "/" + labels["container"]
			}
			if s.usable(family) && !seen[s.Labels] {
				seen[s.Labels] = true
				all = append(all, s.rounded(family))
			}
		}
	}
	slices.SortFunc(all, compareSamples)
	return all, nil
}

func metricValue(m *dto.Metric) float64 {
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
}

func (s textSample) usable(f family) bool {
	most := float64(maxBytes)
	switch f {
	case containerCPU, nodeCPU:
		most = maxCPU
	case containerStart:
		most = float64(now+maxFuture.Milliseconds()) / 1000
	}
	return s.Value >= 0 && s.Value <= most && (f == containerStart ||
		s.Time <= now+maxFuture.Milliseconds() && s.Time >= now-maxPast.Milliseconds())
}

// rounded returns the sample as nodeState stores it.
func (s textSample) rounded(f family) textSample {
	switch f {
	case containerCPU, nodeCPU:
		return s
	case containerStart:
		s.Value = math.Trunc(s.Value * 1000)
	default:
		s.Value = math.Trunc(s.Value)
	}
	s.Time = 0 // which nodeState does not store
	return s
}

// found returns the samples of the last body in the state.
func found(state *nodeState) []textSample {
	var all []textSample
	for name, c := range containersOf(state) {
		prefix, labels := "container", name
		if c == &state.node {
			prefix, labels = "node", ""
		}
		if c.has(seriesCPU) {
			all = append(all, textSample{prefix + "_cpu_usage_seconds_total", labels, c.cpu, c.cpuTime})
		}
		if c.has(seriesMemory) {
			all = append(all, textSample{prefix + "_memory_working_set_bytes", labels, float64(c.memory), 0})
		}
		if c.has(seriesSwap) {
			all = append(all, textSample{prefix + "_swap_usage_bytes", labels, float64(c.swap), 0})
		}
		if c.has(seriesStart) {
			all = append(all, textSample{prefix + "_start_time_seconds", labels, float64(c.start), 0})
		}
	}
	slices.SortFunc(all, compareSamples)
	return all
}

// generate returns a valid body with all kinds of series, in all notations of the
// format.
func generate(r *rand.Rand) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	blank := func() string { return pick("", "", " ", "\t", "  ") }
	value := func() string {
		switch r.IntN(8) {
		case 0:
			return pick("NaN", "+Inf", "-Inf", "-1", "1e300", "0", "-0", "+0.5")
		case 1:
			return strconv.FormatFloat(r.ExpFloat64()*1e9, 'e', -1, 64)
		case 2:
			return strconv.FormatFloat(r.Float64(), 'g', -1, 64)
		case 3:
			return strconv.FormatFloat(math.Float64frombits(r.Uint64()), 'g', -1, 64)
		case 4:
			return fmt.Sprintf("%d", r.Uint64())
		default:
			return strconv.FormatFloat(r.Float64()*2e9, 'f', r.IntN(12), 64)
		}
	}
	stamp := func() string {
		switch r.IntN(6) {
		case 0:
			return ""
		case 1:
			return fmt.Sprint(" ", now+r.Int64N(400_000)-200_000)
		case 2:
			return fmt.Sprint("\t", now-r.Int64N(8_000_000))
		default:
			return fmt.Sprint(" ", now-r.Int64N(30_000))
		}
	}
	var b strings.Builder
	families := []string{
		"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_start_time_seconds", "container_swap_usage_bytes",
		"node_cpu_usage_seconds_total", "node_memory_working_set_bytes", "node_swap_usage_bytes", "pod_cpu_usage_seconds_total", "other",
	}
	r.Shuffle(len(families), func(i, j int) { families[i], families[j] = families[j], families[i] })
	for _, family := range families {
		if r.IntN(2) == 0 {
			fmt.Fprintf(&b, "# HELP %s some \"text\" {with} braces\n# TYPE %s %s\n", family, family, pick("gauge", "counter", "untyped"))
		}
		lines := 1 + r.IntN(3)
		if strings.HasPrefix(family, "container") {
			lines = r.IntN(12)
		}
		for range lines {
			labels := []string{"a=\"" + pick("", "x", `\"`, `\\`, `\n`, `}{,=`, "é") + "\""}
			if strings.HasPrefix(family, "container") {
				labels = append(labels,
					"container="+blank()+"\""+pick("a", "b", "container", "pod", "x-1", "", `\"`, "é")+"\"",
					"namespace"+blank()+"=\""+pick("ns", "kube-system")+"\"",
					"pod=\""+pick("p", "p-0", "a.b", "namespace", "")+"\"")
			}
			r.Shuffle(len(labels), func(i, j int) { labels[i], labels[j] = labels[j], labels[i] })
			text := "{" + blank() + strings.Join(labels, blank()+","+blank()) + pick("", ",") + blank() + "}"
			if !strings.HasPrefix(family, "container") && r.IntN(2) == 0 {
				text = ""
			}
			fmt.Fprintf(&b, "%s%s%s %s%s\n", family, blank(), text, value(), stamp())
		}
		if r.IntN(3) == 0 {
			b.WriteString(pick("\n", "# a comment\n", "#\n", " \n"))
		}
	}
	return b.String()
}

// compare parses a body both ways. The state may have containers of another body.
func compare(t *testing.T, state *nodeState, body string) {
	t.Helper()
	want, err := reference(body)
	if err != nil {
		t.Fatalf("the reference does not take the generated body: %v\n%s", err, body)
	}
	readText(t, state, strings.NewReader(body))
	if diff := cmp.Diff(want, found(state)); diff != "" {
		t.Fatalf("samples (-reference +got):\n%s\nbody:\n%s", diff, body)
	}
}

func TestAgreesWithReference(t *testing.T) {
	var state nodeState
	for seed := range uint64(1000) {
		compare(t, &state, generate(rand.New(rand.NewPCG(seed, 0))))
	}
}

// FuzzAgreesWithReference is TestAgreesWithReference with fuzzed seeds.
func FuzzAgreesWithReference(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, first, second uint64) {
		var state nodeState
		compare(t, &state, generate(rand.New(rand.NewPCG(first, second))))
		compare(t, &state, generate(rand.New(rand.NewPCG(second, first))))
	})
}

var oddities = regexp.MustCompile(`(?m)^[ \t]*\{|(?i)histogram|summary`)

// FuzzParse parses two bodies of a node, one after the other.
func FuzzParse(f *testing.F) {
	f.Add("", "")
	f.Add("container_cpu_usage_seconds_total 1\n", "container_cpu_usage_seconds_total{init_container=\"z\"} NaN\n")
	f.Add(answers(says("a", 100, 0)).text(), answers(says("a", 115, 15), says("b", 1, 2)).text())
	const pod = "pod_cpu_usage_seconds_total{namespace=\"n\",pod=\"p\"} "
	f.Add(pod+"1\n"+pod+"NaN\n", pod+"2\n")
	f.Add(generate(rand.New(rand.NewPCG(1, 1))), generate(rand.New(rand.NewPCG(2, 2))))
	f.Fuzz(func(t *testing.T, first, second string) {
		var state nodeState
		for i, body := range []string{first, second} {
			at := float64(15 * i)
			state.missing.parse = true
			nodes, pods, _ := scrapeText(t, &state, body, at, false)
			checkState(t, &state)
			with, without := state.countPods(epoch.UnixMilli()+int64(at*1000), math.MaxInt64)
			if with > len(state.pods) || without != len(state.missing.without) || without > len(state.pods)+state.missing.counters {
				t.Errorf("%d pods with and %d without metrics, of %d and %d counters", with, without, len(state.pods), state.missing.counters)
			}
			for _, u := range slices.Concat(nodes, pods) {
				checkPoint(t, u.Point, at)
			}
			// expfmt accepts more: names in braces, which it may even add to the
			// metric before, and histograms. Such bodies are ignored, and so are
			// samples that only expfmt finds. Values must be equal.
			if oddities.MatchString(body) {
				continue
			}
			if want, err := reference(body); err == nil {
				checkAgainst(t, &state, want, body)
			}
		}
	})
}
