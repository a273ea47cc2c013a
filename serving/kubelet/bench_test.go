// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

const (
	benchPods          = 110
	benchPodContainers = 2
	benchContainers    = benchPods * benchPodContainers
)

// benchTime is when the bodies are parsed, Unix ms.
var benchTime = epoch.Add(time.Minute).UnixMilli()

// kubeletBody returns a body with the families, the order and the lengths of numbers
// of a kubelet, a number of refreshes after epoch.
func kubeletBody(refreshes int) []byte {
	var b bytes.Buffer
	type id struct{ container, pod string }
	var ids []id
	for c := range benchPodContainers {
		for p := range benchPods {
			ids = append(ids, id{[]string{"main", "sidecar"}[c], fmt.Sprintf("deployment-%03d-6f7d8c9b5d-x2x%02d", p/3, p)})
		}
	}
	stamp := epoch.Add(time.Duration(refreshes) * 10 * time.Second).UnixMilli()
	family := func(name, kind string, each func(i int) (value float64, stamped bool)) {
		fmt.Fprintf(&b, "# HELP %s [STABLE] Help on %s\n# TYPE %s %s\n", name, name, name, kind)
		for i, id := range ids {
			value, stamped := each(i)
			fmt.Fprintf(&b, "%s{container=%q,namespace=\"namespace-%d\",pod=%q} %s", name, id.container, i%benchPods%5, id.pod, strconv.FormatFloat(value, 'g', -1, 64))
			if stamped {
				fmt.Fprintf(&b, " %d", stamp-int64(i)*7)
			}
			b.WriteByte('\n')
		}
	}
	family("container_cpu_usage_seconds_total", "counter", func(i int) (float64, bool) {
		return 1234.567891 + float64(i) + float64(refreshes)*0.123456789, true
	})
	family("container_memory_working_set_bytes", "gauge", func(i int) (float64, bool) { return float64(12345344 + i*4096), true })
	family("container_start_time_seconds", "gauge", func(i int) (float64, bool) {
		return float64(epoch.Unix()-86400) + float64(i)*1.0000123, false
	})
	family("container_swap_limit_bytes", "gauge", func(int) (float64, bool) { return 0, true })
	family("container_swap_usage_bytes", "gauge", func(int) (float64, bool) { return 0, true })
	fmt.Fprintf(&b, "# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total %v %d\n", 98765.4321+float64(refreshes), stamp)
	fmt.Fprintf(&b, "# TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes 1.616273408e+09 %d\n", stamp)
	fmt.Fprintf(&b, "# TYPE node_swap_usage_bytes gauge\nnode_swap_usage_bytes 0 %d\n", stamp)
	for _, name := range []string{"pod_cpu_usage_seconds_total", "pod_memory_working_set_bytes", "pod_swap_usage_bytes"} {
		fmt.Fprintf(&b, "# TYPE %s gauge\n", name)
		for p := range benchPods {
			fmt.Fprintf(&b, "%s{namespace=\"namespace-%d\",pod=%q} 1.2345344e+07 %d\n", name, p%5, ids[p].pod, stamp)
		}
	}
	b.WriteString("resource_scrape_error 0\n")
	return b.Bytes()
}

func perContainer(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchContainers, "ns/container")
}

// BenchmarkParse parses the body of a node with 110 pods of two containers that were
// in the last body.
func BenchmarkParse(b *testing.B) {
	body, w := kubeletBody(1), new(workspace)
	var state nodeState
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		stats := parseBody(b, &state, bytes.NewReader(body), benchTime, w)
		state.commit()
		if stats.samples != 2*benchContainers+2 || stats.reasons() != 0 {
			b.Fatalf("%d samples, skipped %s", stats.samples, &stats)
		}
	}
	perContainer(b)
}

// BenchmarkParseFirst parses the first body of a node.
func BenchmarkParseFirst(b *testing.B) {
	body, w := kubeletBody(1), new(workspace)
	b.ReportAllocs()
	for b.Loop() {
		var state nodeState
		parseBody(b, &state, bytes.NewReader(body), benchTime, w)
		state.commit()
	}
	perContainer(b)
}

// BenchmarkParseAndPublish does all of a scrape but the network. Each body has new
// samples of all pods.
func BenchmarkParseAndPublish(b *testing.B) {
	var bodies [8][]byte
	for i := range bodies {
		bodies[i] = kubeletBody(i + 1)
	}
	clock := clocktesting.NewFakePassiveClock(epoch)
	store := samplestore.NewStore(clock, 90*time.Second)
	store.Nodes.SetMeta(samplestore.Key{Name: "n1"}, &samplestore.Meta{UID: "u"})
	for i, id := range benchKeys() {
		store.Pods.SetMeta(id, &samplestore.Meta{UID: types.UID(fmt.Sprint(i))})
	}
	w, state := new(workspace), new(nodeState)
	shifted := make([]byte, 0, len(bodies[0]))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(bodies) == 0 {
			// The counters start again, with a new node of the same size.
			b.StopTimer()
			state, store = new(nodeState), samplestore.NewStore(clock, 90*time.Second)
			for i, id := range benchKeys() {
				store.Pods.SetMeta(id, &samplestore.Meta{UID: types.UID(fmt.Sprint(i))})
			}
			publishBody(b, state, w, store, bodies[0])
			i++
			b.StartTimer()
		}
		shifted = append(shifted[:0], bodies[i%len(bodies)]...)
		if n := publishBody(b, state, w, store, shifted); n != benchPods {
			b.Fatalf("%d points of pods were accepted", n)
		}
	}
	perContainer(b)
}

func benchKeys() []samplestore.Key {
	var keys []samplestore.Key
	for p := range benchPods {
		keys = append(keys, samplestore.Key{Namespace: fmt.Sprintf("namespace-%d", p%5), Name: fmt.Sprintf("deployment-%03d-6f7d8c9b5d-x2x%02d", p/3, p)})
	}
	return keys
}

func publishBody(b *testing.B, state *nodeState, w *workspace, store *samplestore.Store, body []byte) int {
	stats := parseBody(b, state, bytes.NewReader(body), benchTime, w)
	state.commit()
	nodes, pods := state.points("n1", rateRulesFor(15*time.Second), w, &stats)
	store.Nodes.Publish(nodes)
	return store.Pods.Publish(pods)
}

// BenchmarkExpfmt parses the same body with Prometheus' parser, for comparison.
func BenchmarkExpfmt(b *testing.B) {
	body := kubeletBody(1)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
		if err != nil || len(families) != 12 {
			b.Fatal(len(families), err)
		}
	}
	perContainer(b)
}
