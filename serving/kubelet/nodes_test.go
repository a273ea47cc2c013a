// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto/tls"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestNodesThatComeAndGo(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		f := newBubble(t, testSettings(), certificate, unstamped)
		f.add(3)
		time.Sleep(time.Minute)
		count := func(i int, since time.Time) int { synctest.Wait(); return len(f.times(f.name(i), since)) }

		since := time.Now()
		f.source.DeleteNode(f.name(0))
		f.source.DeleteNode("never-seen")
		relabelled := f.node(1)
		relabelled.Labels = map[string]string{"scrape": "no"}
		cfg := testSettings()
		cfg.TLS = v1alpha1.KubeletTLSInsecureSkipTLSVerify
		cfg.NodeSelector = labels.SelectorFromSet(labels.Set{"name": f.name(1)})
		mustApply(t, f.source, cfg)
		time.Sleep(time.Minute)
		if a, b, c := count(0, since), count(1, since), count(2, since); a != 0 || b != 4 || c != 0 {
			t.Errorf("scraped %d, %d, %d times; want 0 (deleted), 4, 0 (not selected)", a, b, c)
		}
		if got := f.source.Report().Nodes; got != 1 {
			t.Errorf("%d nodes reported, want 1", got)
		}

		since = time.Now()
		f.source.SetNode(relabelled)
		f.source.SetNode(f.node(0)) // not selected
		time.Sleep(time.Minute)
		if a, b := count(0, since), count(1, since); a != 0 || b != 0 {
			t.Errorf("scraped %d, %d times; want 0 (not selected), 0 (relabelled)", a, b)
		}

		since = time.Now()
		cfg.NodeSelector = nil
		mustApply(t, f.source, cfg)
		time.Sleep(time.Minute)
		// At once, to warm up, and then in each interval.
		for i := range 3 {
			if got := count(i, since); got < 5 || got > 6 {
				t.Errorf("%s was scraped %d times, want 5 or 6: all are selected", f.name(i), got)
			}
		}
	})
}

// TestHeartbeat checks that a node that is set again changes something only if it differs in what scrapes depend on.
func TestHeartbeat(t *testing.T) {
	s := newTestSource(t, clock.RealClock{}, newAuthority(t).pem, nil, testSettings())
	node := func() *Node {
		n := testNode("a", "10.0.0.1")
		n.Labels = map[string]string{"zone": "x"}
		return n
	}
	first := node()
	s.SetNode(first)
	if s.SetNode(node()); s.nodes["a"] != first {
		t.Error("an equal node replaced the first one")
	}
	for what, change := range map[string]func(*Node){
		"another UID":     func(n *Node) { n.UID = "uid-2" },
		"another path":    func(n *Node) { n.Path = "/m" },
		"another address": func(n *Node) { n.Addresses[0].Address = "10.0.0.2" },
		"another port":    func(n *Node) { n.KubeletPort = 1 },
		"other labels":    func(n *Node) { n.Labels = map[string]string{"pool": "y"} },
	} {
		next := node()
		change(next)
		if s.SetNode(next); s.nodes["a"] != next {
			t.Errorf("a node with %s is taken for the one before", what)
		}
	}
}

// TestHangingNodes checks that hanging nodes do not delay the others.
func TestHangingNodes(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		const nodes, healthy = 60, 10
		cfg := testSettings()
		cfg.MaxConcurrent = 4
		f := newBubble(t, cfg, certificate, func(node string, w http.ResponseWriter, r *http.Request) {
			if node >= "n010" {
				<-r.Context().Done()
				return
			}
			unstamped(node, w, r)
		})
		f.add(nodes)
		time.Sleep(2 * time.Minute)
		since := time.Now()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for i := range healthy {
			times := f.times(f.name(i), since)
			if len(times) < 39 {
				t.Errorf("%s, which answers, was scraped %d times in 40 intervals", f.name(i), len(times))
			}
			for j := 1; j < len(times); j++ {
				if gap := times[j].Sub(times[j-1]); gap > 20*time.Second {
					t.Errorf("%s, which answers, was not scraped for %s", f.name(i), gap)
				}
			}
		}
		for i := healthy; i < nodes; i++ {
			if got := len(f.times(f.name(i), since)); got == 0 || got > 10 {
				t.Errorf("%s, which hangs, was scraped %d times in 40 intervals, want some, at most 10", f.name(i), got)
			}
		}
		report := f.source.Report()
		if report.Healthy != healthy || len(report.Failures) != 1 || report.Failures[0].Reason != v1alpha1.ScrapeTimeout {
			t.Errorf("report: %+v", report)
		}
		if err := f.source.Alive(time.Now()); err != nil {
			t.Errorf("Alive() = %v", err)
		}
	})
}

// TestNodeRecovers checks the schedule of a node that no longer hangs.
func TestNodeRecovers(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		begin := time.Now()
		f := newBubble(t, testSettings(), certificate, func(node string, w http.ResponseWriter, r *http.Request) {
			if time.Since(begin) < 5*time.Minute {
				<-r.Context().Done()
				return
			}
			unstamped(node, w, r)
		})
		f.add(1)
		time.Sleep(5 * time.Minute)
		// The longest backoff, then to warm up, then each interval.
		time.Sleep(time.Minute + warmUpTime)
		since := time.Now()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := len(f.times(f.name(0), since)); got != 20 {
			t.Errorf("scraped %d times in 20 intervals after it recovered", got)
		}
		if report := f.source.Report(); report.Healthy != 1 {
			t.Errorf("report: %+v", report)
		}
	})
}

func TestNewAddressEndsBackoff(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		var answers atomic.Bool
		f := newBubble(t, testSettings(), certificate, func(node string, w http.ResponseWriter, r *http.Request) {
			if !answers.Load() {
				<-r.Context().Done()
				return
			}
			unstamped(node, w, r)
		})
		f.add(1)
		time.Sleep(4 * time.Minute)
		for f.source.gaugeInFlight() > 0 {
			time.Sleep(time.Second)
		}
		answers.Store(true)
		since := time.Now()
		moved := f.node(0)
		moved.Addresses[0].Address = "192.0.2.2"
		f.source.SetNode(moved)
		time.Sleep(16 * time.Second)
		synctest.Wait()
		if got := len(f.times(f.name(0), since)); got == 0 {
			t.Error("not scraped within an interval at its new address")
		}
	})
}

func TestDeleteNodeEndsItsScrape(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		ended := make(chan struct{}, 1)
		f := newBubble(t, testSettings(), certificate, func(_ string, _ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			ended <- struct{}{}
		})
		f.add(1)
		for f.source.gaugeInFlight() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		f.source.DeleteNode(f.name(0))
		<-ended
		synctest.Wait()
		if got := f.source.gaugeInFlight(); got != 0 {
			t.Errorf("%d scrapes running, want none", got)
		}
		if got := f.source.Report().Nodes; got != 0 {
			t.Errorf("%d nodes, want none", got)
		}
	})
}

// TestReplacedNode checks that no state is kept of a node with another UID.
func TestReplacedNode(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		f := newBubble(t, testSettings(), certificate, unstamped)
		f.add(1)
		time.Sleep(time.Minute)
		if has, counts := f.source.HasRates(); !has {
			t.Fatalf("no rates: %s", counts)
		}
		replaced := f.node(0)
		replaced.UID = "uid-2"
		f.source.SetNode(replaced)
		if report := f.source.Report(); report.Pending != 1 || report.Nodes != 1 {
			t.Errorf("report of the node that replaced another: %+v", report)
		}
		if has, counts := f.source.HasRates(); has {
			t.Errorf("rates from the samples of another machine: %s", counts)
		}
		time.Sleep(time.Minute)
		if has, counts := f.source.HasRates(); !has {
			t.Errorf("no rates: %s", counts)
		}
	})
}
