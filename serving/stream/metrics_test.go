// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// testRegistry has the process's metrics, as legacyregistry has them in a server.
var testRegistry = func() metrics.KubeRegistry {
	r := metrics.NewKubeRegistry()
	MetricSet.Register(r.MustRegister)
	return r
}()

// ownGroups makes groups that no other test has, nor another run of the same.
var ownGroups atomic.Int64

// ownAPI returns an API whose series begin at zero.
func ownAPI(t testing.TB) API {
	return API{Group: fmt.Sprintf("%s-%d", strings.NewReplacer("/", "-", " ", "-", ":", "").Replace(t.Name()), ownGroups.Add(1)), Version: "v1", Resource: "pods"}
}

func newMetrics(t testing.TB) *Metrics { return NewMetrics(ownAPI(t)) }

// quiet is the context of a test that has nothing to log.
func quiet(t testing.TB) context.Context { return klog.NewContext(t.Context(), klog.Logger{}) }

// series returns what an API counted, by name without the prefix and by the labels
// beside the API's: those that are not zero. Of a histogram it returns the count
// and the sum.
func series(t testing.TB, api API) map[string]float64 {
	t.Helper()
	families, err := testRegistry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name, own := strings.TrimPrefix(f.GetName(), "metrics_api_"), false
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "group":
					own = l.GetValue() == api.Group
				case "version", "resource":
				default:
					name += " " + l.GetValue()
				}
			}
			if !own {
				continue
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if h := m.GetHistogram(); h != nil {
				got[name+" count"], got[name+" sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
			}
		}
	}
	maps.DeleteFunc(got, func(_ string, v float64) bool { return v == 0 })
	return got
}

// TestMetrics follows a watch from its request to its end.
func TestMetrics(t *testing.T) {
	w, m := newWorld(t), newMetrics(t)
	w.pod("a", "one", "app=web")
	w.pod("a", "two", "app=web")
	w.store("a", "one", 1)
	w.store("a", "two", 1)
	watcher := w.watch(Request{
		Bookmarks: true, InitialEventsEnd: true, Metrics: m, Received: t0.Add(-20 * time.Millisecond),
	}, 0)

	w.clock.Step(30 * time.Millisecond)
	read(t, watcher)
	want := map[string]float64{
		"watch_connections_total": 1, "watch_connections_open": 1,
		"watch_events_sent_total initial": 2, "watch_events_sent_total bookmark": 1,
		"watch_first_event_seconds count": 1, "watch_first_event_seconds sum": 0.05,
	}
	if diff := cmp.Diff(want, series(t, m.api)); diff != "" {
		t.Errorf("after the initial events (-want +got):\n%s", diff)
	}

	w.store("a", "one", 2)
	w.store("a", "two", 2)
	w.store("a", "one", 3) // supersedes the first
	w.hub.setGauges(w.clock.Now())
	if got := series(t, m.api); got["watch_pending_points"] != 3 || got["watch_memory_bytes"] < 60<<10 {
		t.Errorf("%v points pending in %v bytes, want 3 in 60 KiB or more", got["watch_pending_points"], got["watch_memory_bytes"])
	}
	w.clock.Step(250 * time.Millisecond)
	read(t, watcher)
	watcher.Stop()
	w.pass(gaugeInterval)
	maps.Copy(want, map[string]float64{
		"watch_connections_open": 0, "watch_events_sent_total live": 2, "watch_coalesced_points_total": 1,
		"watch_delivery_latency_seconds count": 2, "watch_delivery_latency_seconds sum": 0.5,
		"watch_duration_seconds count": 1, "watch_duration_seconds sum": 0.28,
	})
	maps.DeleteFunc(want, func(_ string, v float64) bool { return v == 0 })
	got := series(t, m.api)
	if diff := cmp.Diff(want, got, approximately); diff != "" {
		t.Errorf("after the end (-want +got):\n%s", diff)
	}
}

// approximately compares sums of times, of which each is rounded.
var approximately = cmp.Comparer(func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 })

// TestFirstEventIsTheServers: a watch that has to wait for a data point says
// nothing about how fast the server is.
func TestFirstEventIsTheServers(t *testing.T) {
	w, m := newWorld(t), newMetrics(t)
	w.pod("a", "one", "")
	watcher := w.watch(Request{Metrics: m}, 0)
	read(t, watcher)
	w.pass(time.Minute)
	w.store("a", "one", 1)
	read(t, watcher)
	got := series(t, m.api)
	if got["watch_events_sent_total live"] != 1 || got["watch_first_event_seconds count"] != 0 {
		t.Errorf("%v", got)
	}
}

// TestRescan is about a client that read nothing while more was stored than
// its log holds.
func TestRescan(t *testing.T) {
	w, m := newWorld(t), newMetrics(t)
	w.pod("a", "one", "")
	w.pod("a", "two", "")
	watcher := w.watch(Request{Metrics: m}, 0)
	read(t, watcher)
	for value := range 2 * minLog {
		w.store("a", "one", value)
		w.store("a", "two", value)
	}
	read(t, watcher)
	got := series(t, m.api)
	if got["watch_rescans_total"] != 1 || got["watch_events_sent_total live"] != 2 {
		t.Errorf("%v", got)
	}
}

// TestPendingPoints is about clients that read nothing: what waits for one is bounded by its
// selection's log, which holds one entry where one object is watched.
func TestPendingPoints(t *testing.T) {
	for name, c := range map[string]struct {
		fields string
		want   float64
	}{
		"of one object": {"metadata.name=one", 1},
		"of all":        {"", minLog},
	} {
		t.Run(name, func(t *testing.T) {
			w, m := newWorld(t), newMetrics(t)
			w.pod("a", "one", "")
			request := Request{Selection: selecting(t, "a", "", c.fields), Metrics: m}
			read(t, w.watch(request, 0))
			for value := range 2 * minLog {
				w.store("a", "one", value)
			}
			w.hub.setGauges(w.clock.Now())
			if got := series(t, m.api)["watch_pending_points"]; got != c.want {
				t.Errorf("%v points pending, want %v", got, c.want)
			}
		})
	}
}

// TestRejected counts refused watches by the limit that they met.
func TestRejected(t *testing.T) {
	rejected := func() map[string]float64 {
		families, err := testRegistry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "metrics_api_watch_rejected_total" {
					got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
		return got
	}
	NewQuota(clock.RealClock{}, rand.Float64, Limits{})
	before := rejected() // all of them, from zero: of a series that appears at 1 a rate is 0
	limits := map[string]Limits{
		limitConnections: {PerUser: 1, OpensPerSecond: 1, OpensBurst: 1},
		limitPerUser:     {Connections: 1, OpensPerSecond: 1, OpensBurst: 1},
		limitOpenRate:    {Connections: 1, PerUser: 1, OpensPerSecond: 1},
	}
	for name, l := range limits {
		if _, err := NewQuota(clock.RealClock{}, rand.Float64, l).Acquire(&user.DefaultInfo{Name: "jane"}); err == nil {
			t.Errorf("%s does not hold", name)
		}
	}
	if len(before) != len(limits) {
		t.Errorf("before any was met there are %v", before)
	}
	for name, after := range rejected() {
		if after-before[name] != 1 {
			t.Errorf("%s met %v times, want once", name, after-before[name])
		}
	}
}
