// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/test/authority"
	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

func TestDue(t *testing.T) {
	ca, err := authority.New("ca")
	if err != nil {
		t.Fatal(err)
	}
	// One kubelet each second.
	kubelets := []string{"a", "b", "c", "d"}
	for name, tc := range map[string]struct {
		elapsed []time.Duration
		want    [][]string
	}{
		"nothing yet": {
			elapsed: []time.Duration{0, 500 * time.Millisecond},
			want:    [][]string{nil, nil},
		},
		"each in turn, and again": {
			elapsed: []time.Duration{time.Second, 3 * time.Second, 5 * time.Second},
			want:    [][]string{{"a"}, {"b", "c"}, {"d", "a"}},
		},
		"each once after a pause": {
			elapsed: []time.Duration{time.Second, time.Minute + time.Second},
			want:    [][]string{{"a"}, {"b", "c", "d", "a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := newReader(bareSettings{Kubelets: kubelets, CA: ca.PEM, Interval: 4 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			var got [][]string
			for _, elapsed := range tc.elapsed {
				var due []string
				for _, k := range r.due(elapsed) {
					due = append(due, k.address)
				}
				got = append(got, due)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("due (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSweep(t *testing.T) {
	f, err := fleet.New(fleet.Options{Nodes: 3, PodsPerNode: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer f.Wait()
	defer stop()
	if err := f.Start(ctx); err != nil {
		t.Fatal(err)
	}
	settings := bareSettings{CA: f.Authority().PEM}
	for _, node := range f.Nodes() {
		settings.Kubelets = append(settings.Kubelets, node.Address().String())
	}
	r, err := newReader(settings)
	if err != nil {
		t.Fatal(err)
	}
	sweep := func(reads, failed int) {
		t.Helper()
		r.totals.Reads, r.totals.Failed = 0, 0
		r.sweep(r.kubelets)
		if r.totals.Reads != reads || r.totals.Failed != failed {
			t.Errorf("%d reads and %d failures, want %d and %d; first error: %s", r.totals.Reads, r.totals.Failed, reads, failed, r.totals.FirstError)
		}
	}
	sweep(3, 0)
	// The connections are kept.
	before := r.kubelets[0].conn
	sweep(3, 0)
	if r.kubelets[0].conn != before {
		t.Error("a connection was not kept")
	}
	// A kubelet that fails costs no other one its read, and is read again later.
	if err := f.SetFault(fleet.Fault{Kind: fleet.Aborted}, f.Nodes()[1].Name); err != nil {
		t.Fatal(err)
	}
	sweep(2, 1)
	if err := f.SetFault(fleet.Fault{}); err != nil {
		t.Fatal(err)
	}
	sweep(3, 0)
}

func TestParseTotals(t *testing.T) {
	got, err := parseTotals([]byte(connectedLine + `{"Reads":7,"Failed":1,"Bytes":9,"FirstError":"x"}` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bareTotals{Reads: 7, Failed: 1, Bytes: 9, FirstError: "x"}, got); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	if _, err := parseTotals([]byte(connectedLine)); err == nil {
		t.Error("no error without totals")
	}
}
