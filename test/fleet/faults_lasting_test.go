// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSlowAnswersAfterItsTime(t *testing.T) {
	f, clock := newFleet(t, Options{PodsPerNode: 1})
	start(t, f)
	c := newClient(t, f, true)
	if err := f.SetFault(Fault{Kind: Slow}); err != nil {
		t.Fatal(err)
	}
	answers := make(chan answer, 1)
	go func() { answers <- c.scrape(context.Background(), f.Nodes()[0]) }()
	until(t, "the kubelet waits", clock.HasWaiters)
	clock.Step(4999 * time.Millisecond)
	if !clock.HasWaiters() {
		t.Error("the kubelet waits less than 5 s")
	}
	clock.Step(time.Millisecond)
	if a := <-answers; a.err != nil || !bytes.Equal(a.body, f.Nodes()[0].AppendBody(nil, epoch.Add(5*time.Second))) {
		t.Errorf("status %d, error %v, or samples of another time", a.status, a.err)
	}
}

func TestHangingUntilTheClientLeavesOrTheFaultIsOver(t *testing.T) {
	for protocol, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(protocol, func(t *testing.T) {
			f, _ := newFleet(t, Options{PodsPerNode: 1})
			start(t, f)
			c := newClient(t, f, http2)
			if err := f.SetFault(Fault{Kind: Hanging}); err != nil {
				t.Fatal(err)
			}
			answers := make(chan answer, 1)
			ctx, leave := context.WithCancel(t.Context())
			go func() { answers <- c.scrape(ctx, f.Nodes()[0]) }()
			until(t, "a request in flight", func() bool { return f.Stats().InFlight == 1 })
			leave()
			if a := <-answers; !errors.Is(a.err, context.Canceled) {
				t.Errorf("status %d, error %v", a.status, a.err)
			}
			until(t, "the kubelet notices", func() bool { return f.Stats().InFlight == 0 })

			go func() { answers <- c.scrape(t.Context(), f.Nodes()[0]) }()
			until(t, "a request in flight", func() bool { return f.Stats().InFlight == 1 })
			if err := f.SetFault(Fault{}); err != nil {
				t.Fatal(err)
			}
			if a := <-answers; a.err != nil || a.status != http.StatusOK {
				t.Errorf("after healing: status %d, error %v", a.status, a.err)
			}
		})
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
	if _, err := f.Churn(Churn{Restart: 2, Replace: 1}); err != nil {
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

func TestChangedCertificateIsAnotherEachTime(t *testing.T) {
	f, _ := newFleet(t, Options{PodsPerNode: 1})
	start(t, f)
	c := newClient(t, f, true)
	seen := func() string {
		t.Helper()
		a := c.scrapeAnew(t.Context(), f.Nodes()[0])
		if a.err != nil {
			t.Fatal(a.err)
		}
		return a.serial
	}
	set := func(fault Fault) {
		t.Helper()
		if err := f.SetFault(fault); err != nil {
			t.Fatal(err)
		}
	}
	first := seen()
	set(Fault{Kind: ChangedCertificate})
	second, again := seen(), seen()
	set(Fault{Kind: ChangedCertificate})
	third := seen()
	set(Fault{})
	if second == first || third == first || third == second || again != second {
		t.Errorf("certificates %s, %s, %s, %s", first, second, again, third)
	}
	if healed := seen(); healed != first {
		t.Errorf("after healing %s, want the first one, %s", healed, first)
	}
}

// The client stops to read long before the end, and the kubelet goes on for others.
func TestHugeIsAbandoned(t *testing.T) {
	f, _ := newFleet(t, Options{PodsPerNode: 1})
	start(t, f)
	c := newClient(t, f, true)
	if err := f.SetFault(Fault{Kind: Huge}); err != nil {
		t.Fatal(err)
	}
	if got := f.Nodes()[0].Fault().Bytes; got != 2<<30 {
		t.Errorf("a huge body has %d bytes", got)
	}
	response, err := c.get(t.Context(), f.Nodes()[0], defaultMetricsPath)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, response.Body, 32<<20); err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	until(t, "the kubelet notices", func() bool { return f.Stats().InFlight == 0 })
	if f.Stats().Answered != 0 {
		t.Error("an abandoned answer counts as a whole one")
	}
}

func TestSetFaultChecks(t *testing.T) {
	f, _ := newFleet(t, Options{Nodes: 2, PodsPerNode: 1})
	for name, test := range map[string]struct {
		fault Fault
		nodes []string
		want  string
	}{
		"an unknown kind":     {Fault{Kind: "sloth"}, nil, `unknown fault "sloth": known are aborted, changed-certificate,`},
		"an unknown node":     {Fault{Kind: Slow}, []string{"fleet-node-0000", "who"}, `no node "who"`},
		"a negative duration": {Fault{Kind: Slow, Duration: metav1.Duration{Duration: -1}}, nil, "must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			err := f.SetFault(test.fault, test.nodes...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that contains %q", err, test.want)
			}
			for _, n := range f.Nodes() {
				if n.Fault() != (Fault{}) {
					t.Errorf("%s has fault %v all the same", n.Name, n.Fault())
				}
			}
		})
	}
}

func TestSharesNest(t *testing.T) {
	f, _ := newFleet(t, Options{Nodes: 100, PodsPerNode: -1})
	for share, want := range map[float64]int{0: 1, 0.001: 1, 0.1: 10, 0.255: 26, 1: 100} {
		if got := len(f.Share(share)); got != want {
			t.Errorf("a share of %v is %d nodes, want %d", share, got, want)
		}
	}
	if diff := cmp.Diff(f.Share(0.1), f.Share(0.5)[:10]); diff != "" {
		t.Errorf("a tenth is not in the half:\n%s", diff)
	}
}
