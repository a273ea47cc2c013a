// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
)

func hasStatus(want int) func(*testing.T, *Node, answer) {
	return func(t *testing.T, _ *Node, a answer) {
		if a.err != nil || a.status != want {
			t.Errorf("got status %d, error %v, want %d", a.status, a.err, want)
		}
	}
}

// distorted checks what became of each series, against the healthy body.
func distorted(check func(t *testing.T, name string, healthy, got *dto.Metric)) func(*testing.T, *Node, answer) {
	return func(t *testing.T, n *Node, a answer) {
		if a.err != nil || a.status != http.StatusOK {
			t.Fatalf("got status %d, error %v", a.status, a.err)
		}
		before, after := parse(t, n.AppendBody(nil, epoch)), parse(t, a.body)
		if diff := cmp.Diff(names(before), names(after)); diff != "" {
			t.Fatalf("families (-healthy +got):\n%s", diff)
		}
		for _, name := range names(before) {
			if name == "resource_scrape_error" || strings.Contains(name, "start_time") || strings.Contains(name, "swap") {
				continue
			}
			if len(before[name].Metric) != len(after[name].Metric) {
				t.Fatalf("%s has %d series, want %d", name, len(after[name].Metric), len(before[name].Metric))
			}
			for i, m := range after[name].Metric {
				check(t, name, before[name].Metric[i], m)
			}
		}
	}
}

func shifted(by time.Duration) func(*testing.T, *Node, answer) {
	return distorted(func(t *testing.T, name string, healthy, got *dto.Metric) {
		if got := time.Duration(got.GetTimestampMs()-healthy.GetTimestampMs()) * time.Millisecond; got != by {
			t.Errorf("%s is shifted by %v, want %v", name, got, by)
		}
	})
}

func TestFaultsAsAClientSeesThem(t *testing.T) {
	tests := map[string]struct {
		fault Fault
		check func(*testing.T, *Node, answer)
	}{
		"reset": {Fault{Kind: Reset}, func(t *testing.T, _ *Node, a answer) {
			if !errors.Is(a.err, syscall.ECONNRESET) && !errors.Is(a.err, io.EOF) && !errors.Is(a.err, io.ErrUnexpectedEOF) {
				t.Errorf("got status %d, error %v, want a reset", a.status, a.err)
			}
		}},
		"aborted": {Fault{Kind: Aborted}, func(t *testing.T, n *Node, a answer) {
			healthy := n.AppendBody(nil, epoch)
			if a.status != http.StatusOK || a.err == nil || !bytes.HasPrefix(healthy, a.body) || len(a.body) >= len(healthy) {
				t.Errorf("got status %d, %d bytes of %d, error %v", a.status, len(a.body), len(healthy), a.err)
			}
		}},
		"truncated": {Fault{Kind: Truncated}, func(t *testing.T, n *Node, a answer) {
			healthy := n.AppendBody(nil, epoch)
			if a.status != http.StatusOK || a.err != nil {
				t.Fatalf("got status %d, error %v", a.status, a.err)
			}
			if !bytes.HasPrefix(healthy, a.body) || len(a.body) >= len(healthy) || a.body[len(a.body)-1] == '\n' {
				t.Errorf("got %d bytes of %d, ending in %q", len(a.body), len(healthy), a.body[len(a.body)-20:])
			}
		}},
		"garbage": {Fault{Kind: Garbage}, func(t *testing.T, _ *Node, a answer) {
			if a.err != nil || a.status != http.StatusOK || len(a.body) != 64<<10 || utf8.Valid(a.body) {
				t.Errorf("got status %d, %d bytes, error %v", a.status, len(a.body), a.err)
			}
		}},
		"forbidden":      {Fault{Kind: Forbidden}, hasStatus(http.StatusForbidden)},
		"internal error": {Fault{Kind: InternalError}, hasStatus(http.StatusInternalServerError)},
		"NaN": {Fault{Kind: NaN}, distorted(func(t *testing.T, name string, _, got *dto.Metric) {
			if !math.IsNaN(value(got)) {
				t.Errorf("%s is %v", name, value(got))
			}
		})},
		"negative": {Fault{Kind: Negative}, distorted(func(t *testing.T, name string, healthy, got *dto.Metric) {
			if value(got) != -value(healthy) {
				t.Errorf("%s is %v, want %v", name, value(got), -value(healthy))
			}
		})},
		"enormous": {Fault{Kind: Enormous}, distorted(func(t *testing.T, name string, _, got *dto.Metric) {
			if value(got) != 1e300 {
				t.Errorf("%s is %v", name, value(got))
			}
		})},
		"old":    {Fault{Kind: Old}, shifted(-time.Hour)},
		"future": {Fault{Kind: Future}, shifted(time.Hour)},
		"three containers NaN": {Fault{Kind: NaN, Containers: 3}, func(t *testing.T, _ *Node, a answer) {
			bad := 0
			for line := range strings.Lines(string(a.body)) {
				if strings.Contains(line, " NaN ") {
					bad++
					if !strings.HasPrefix(line, "container_") {
						t.Errorf("not of a container: %s", line)
					}
				}
			}
			if bad != 3*3 {
				t.Errorf("%d series are NaN, want CPU, memory and swap of three containers", bad)
			}
		}},
		"more containers than there are": {Fault{Kind: Negative, Containers: 999}, hasStatus(http.StatusOK)},
		"duplicate": {Fault{Kind: Duplicate}, func(t *testing.T, n *Node, a answer) {
			healthy := parse(t, n.AppendBody(nil, epoch))
			for name, count := range map[string]int{"container_cpu_usage_seconds_total{": 20, "pod_memory_working_set_bytes{": 10, "node_cpu_usage_seconds_total": 1} {
				if got := bytes.Count(a.body, []byte("\n"+name)); got != 2*count {
					t.Errorf("%d series of %s, want each of %d twice", got, name, count)
				}
			}
			// The registry of a real kubelet sorts equals together; the parser refuses none.
			for i, m := range healthy["node_cpu_usage_seconds_total"].Metric {
				if got := value(parse(t, a.body)["node_cpu_usage_seconds_total"].Metric[2*i+1]); got != 2*value(m) {
					t.Errorf("the duplicate is %v, want %v", got, 2*value(m))
				}
			}
		}},
		"no labels": {Fault{Kind: NoLabels}, func(t *testing.T, _ *Node, a answer) {
			if bytes.Contains(a.body, []byte("{")) {
				t.Error("the body has labels")
			}
			if got := bytes.Count(a.body, []byte("\ncontainer_cpu_usage_seconds_total ")); got != 20 {
				t.Errorf("%d series without labels, want 20", got)
			}
		}},
	}
	for _, kind := range kinds {
		// TestFrozenRepeatsItself, TestHangingEndsWithTheFleet and TestAnswersTakeTime.
		tested := kind == Frozen || kind == Hanging || kind == Slow
		for _, test := range tests {
			tested = tested || test.fault.Kind == kind
		}
		if !tested {
			t.Errorf("fault %s is not tested", kind)
		}
	}
	for protocol, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		for name, test := range tests {
			t.Run(name+", "+protocol, func(t *testing.T) {
				f, _ := newFleet(t, Options{Nodes: 2, PodsPerNode: 10})
				start(t, f)
				c := newClient(t, f, http2)
				sick, well := f.Nodes()[0], f.Nodes()[1]
				for _, n := range f.Nodes() { // connections that a fault has to reach
					if a := c.scrape(t.Context(), n); a.err != nil || a.status != http.StatusOK {
						t.Fatalf("healthy %s: %d, %v", n.Name, a.status, a.err)
					}
				}
				if err := f.SetFault(test.fault, sick.Name); err != nil {
					t.Fatal(err)
				}
				test.check(t, sick, c.scrape(t.Context(), sick))
				healthy := answer{status: http.StatusOK, body: well.AppendBody(nil, epoch)}
				if diff := cmp.Diff(healthy, c.scrape(t.Context(), well), cmp.AllowUnexported(answer{})); diff != "" {
					t.Errorf("the other node (-want +got):\n%s", diff)
				}
				if err := f.SetFault(Fault{}, sick.Name); err != nil {
					t.Fatal(err)
				}
				if a := c.scrape(t.Context(), sick); a.err != nil || !bytes.Equal(a.body, sick.AppendBody(nil, epoch)) {
					t.Errorf("after healing: status %d, %d bytes, error %v", a.status, len(a.body), a.err)
				}
			})
		}
	}
}

func TestFrozenRepeatsItself(t *testing.T) {
	f, clock := newFleet(t, Options{PodsPerNode: 3})
	start(t, f)
	c, n := newClient(t, f, true), f.Nodes()[0]
	if err := f.SetFault(Fault{Kind: Frozen}); err != nil {
		t.Fatal(err)
	}
	before := n.AppendBody(nil, epoch)
	clock.Step(time.Hour)
	if err := f.Restart(n.Pods()[0].Key()); err != nil {
		t.Fatal(err)
	}
	if a := c.scrape(t.Context(), n); !bytes.Equal(a.body, before) {
		t.Errorf("after an hour: %v, %s", a.err, cmp.Diff(string(before), string(a.body)))
	}
	if err := f.SetFault(Fault{}); err != nil {
		t.Fatal(err)
	}
	if a := c.scrape(t.Context(), n); !bytes.Equal(a.body, n.AppendBody(nil, clock.Now())) {
		t.Errorf("after healing the samples are not of now: %v", a.err)
	}
}

func TestSetFaultChecks(t *testing.T) {
	f, _ := newFleet(t, Options{Nodes: 2, PodsPerNode: 1})
	for name, test := range map[string]struct {
		fault Fault
		nodes []string
		want  string
	}{
		"an unknown kind":           {Fault{Kind: "sloth"}, nil, `unknown fault "sloth": known are ["reset" "aborted"`},
		"slow by nothing":           {Fault{Kind: Slow}, nil, `"slow" needs a positive time`},
		"another fault with a time": {Fault{Kind: NaN, After: time.Second}, nil, "no other fault has one"},
		"an unknown node":           {Fault{Kind: NaN}, []string{"fleet-node-0000", "who"}, `no node "who"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := f.SetFault(test.fault, test.nodes...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that contains %q", err, test.want)
			}
			for _, n := range f.Nodes() {
				if got := n.fault.Load().Fault; got != (Fault{}) {
					t.Errorf("%s has fault %v all the same", n.Name, got)
				}
			}
		})
	}
}
