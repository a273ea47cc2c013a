// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

func TestMaxConcurrent(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		cfg := testSettings()
		cfg.MaxConcurrent = 4
		f := newBubble(t, cfg, certificate, func(node string, w http.ResponseWriter, r *http.Request) {
			time.Sleep(900 * time.Millisecond)
			unstamped(node, w, r)
		})
		begin := time.Now()
		f.add(60) // 54 s of work in 15 s, of which four slots do 60
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if f.most != 4 {
			t.Errorf("%d scrapes at once, want 4", f.most)
		}
		for i := range 60 {
			if got := len(f.times(f.name(i), begin)); got < 18 {
				t.Errorf("%s was scraped %d times in 20 intervals", f.name(i), got)
			}
		}
		cfg.MaxConcurrent, cfg.TLS = 8, v1alpha1.KubeletTLSInsecureSkipTLSVerify
		mustApply(t, f.source, cfg)
		f.mu.Lock()
		f.most = 0
		f.mu.Unlock()
		f.add(120)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if f.most != 8 {
			t.Errorf("%d scrapes at once with other settings, want 8", f.most)
		}
	})
}

// TestHangingNodesSingleSlot checks that hanging nodes do not use a single slot all of
// the time.
func TestHangingNodesSingleSlot(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		const hanging, answering = 20, 5
		cfg := testSettings()
		cfg.MaxConcurrent = 1
		f := newBubble(t, cfg, certificate, func(node string, w http.ResponseWriter, r *http.Request) {
			if node < "n020" {
				<-r.Context().Done()
				return
			}
			unstamped(node, w, r)
		})
		f.add(hanging + answering)
		time.Sleep(10 * time.Minute)
		since := time.Now()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		var hung time.Duration
		for i := range hanging {
			n := len(f.times(f.name(i), since))
			if n == 0 {
				t.Errorf("%s was not scraped any more", f.name(i))
			}
			hung += time.Duration(n) * cfg.Timeout
		}
		if hung > 5*time.Minute+cfg.Timeout || hung < 4*time.Minute {
			t.Errorf("nodes that hang had the slot for %s of 10 minutes, want half", hung)
		}
		for i := hanging; i < hanging+answering; i++ {
			// A scrape that waits for a hanging node is late, but within its interval.
			if got := len(f.times(f.name(i), since)); got < 35 {
				t.Errorf("%s was scraped %d times in 40 intervals", f.name(i), got)
			}
		}
	})
}

func TestIntervalChange(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		const nodes = 60
		cfg := testSettings()
		f := newBubble(t, cfg, certificate, unstamped)
		cfg.TLS = v1alpha1.KubeletTLSInsecureSkipTLSVerify
		f.add(nodes)
		time.Sleep(warmUpTime)
		for _, interval := range []time.Duration{15 * time.Second, 5 * time.Second, time.Minute, 20 * time.Second} {
			cfg.Interval, cfg.Timeout = interval, 5*time.Second
			mustApply(t, f.source, cfg)
			since := time.Now()
			time.Sleep(10 * interval)
			synctest.Wait()
			if got, most := f.busiest(since), 2*nodes/int(interval.Seconds())+4; got > most {
				t.Errorf("interval %s: %d requests in one second, want at most %d", interval, got, most)
			}
			for i := range nodes {
				if got := len(f.times(f.name(i), since)); got < 9 || got > 11 {
					t.Errorf("interval %s: %s was scraped %d times in 10 intervals", interval, f.name(i), got)
				}
			}
		}
	})
}

// TestGrid checks that scrapes start at instants of the grid, those that became due since
// the last one together, and that a freed slot does not wait for the next one.
func TestGrid(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		const nodes = 120
		f := newBubble(t, testSettings(), certificate, unstamped)
		f.add(nodes)
		time.Sleep(warmUpTime)
		since := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		together := map[time.Time]int{}
		for i := range nodes {
			for _, at := range f.times(f.name(i), since) {
				if !at.Equal(at.Truncate(grid)) {
					t.Fatalf("%s was scraped at %s, which is not on the grid", f.name(i), at)
				}
				together[at]++
			}
		}
		if scrapes := nodes * 4; len(together) > 4*60+1 || len(together) < scrapes/4 {
			t.Errorf("%d scrapes started at %d instants", scrapes, len(together))
		}
	})
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		const took = 10 * time.Millisecond
		cfg := testSettings()
		cfg.MaxConcurrent = 1
		f := newBubble(t, cfg, certificate, func(node string, w http.ResponseWriter, r *http.Request) {
			time.Sleep(took)
			unstamped(node, w, r)
		})
		begin := time.Now()
		f.add(20) // within 2 s, a few at each instant
		time.Sleep(firstSpread + grid)
		synctest.Wait()
		late := 0
		for i := range 20 {
			for _, at := range f.times(f.name(i), begin) {
				if after := at.Sub(at.Truncate(grid)); after > 0 {
					late++
					if after%took != 0 || after > 8*took {
						t.Errorf("%s was scraped %s after an instant of the grid, want a multiple of %s", f.name(i), after, took)
					}
				}
			}
		}
		if late == 0 {
			t.Error("no scrape waited for another one's slot")
		}
	})
}

// TestLongInterval checks that the first rates do not take a long interval.
func TestLongInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		cfg := testSettings()
		cfg.Interval = 10 * time.Minute
		f := newBubble(t, cfg, certificate, unstamped)
		begin := time.Now()
		f.add(20)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if has, counts := f.source.HasRates(); !has {
			t.Errorf("no rates after two warm-up intervals: %s", counts)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for i := range 20 {
			if got := len(f.times(f.name(i), begin)); got < 13 || got > 15 {
				t.Errorf("%s was scraped %d times in 12 intervals after the first two", f.name(i), got)
			}
		}
	})
}

// TestWarmUp checks that new nodes are scraped at once, and have all points as soon as
// their kubelets have renewed all samples.
func TestWarmUp(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		const nodes = 40
		begin := time.Now()
		// Node samples are renewed each 10 s, those of pod i after 10+i s, i up to 9.
		f := newBubble(t, testSettings(), certificate, func(node string, w http.ResponseWriter, _ *http.Request) {
			number, err := strconv.Atoi(node[1:])
			if err != nil {
				t.Error(err)
			}
			shift := time.Duration(number*7) * 250 * time.Millisecond
			renewed := func(period time.Duration) (int64, int64) {
				at := time.Now().Add(shift).Truncate(period).Add(-shift)
				return at.Unix() - begin.Add(-time.Hour).Unix(), at.UnixMilli()
			}
			cpu, at := renewed(10 * time.Second)
			_, _ = fmt.Fprintf(w, "node_cpu_usage_seconds_total %d %d\nnode_memory_working_set_bytes 1\n", cpu, at)
			for i := range 10 {
				cpu, at := renewed(10*time.Second + time.Duration(i)*time.Second)
				_, _ = fmt.Fprintf(w, "container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"%s-%d\"} %d %d\n", node, i, cpu, at)
				_, _ = fmt.Fprintf(w, "container_memory_working_set_bytes{container=\"c\",namespace=\"n\",pod=\"%s-%d\"} 1 %d\n", node, i, at)
			}
		})
		pods := f.source.store.Pods
		for i := range nodes {
			for j := range 10 {
				pods.SetMeta(samplestore.Key{Namespace: "n", Name: fmt.Sprintf("%s-%d", f.name(i), j)}, &samplestore.Meta{UID: "u"})
			}
		}
		f.add(nodes)
		time.Sleep(firstSpread + grid)
		synctest.Wait()
		for i := range nodes {
			if got := len(f.times(f.name(i), begin)); got != 1 {
				t.Errorf("%s was scraped %d times at first, want once", f.name(i), got)
			}
		}
		if most := f.busiest(begin); most > nodes*2/3 {
			t.Errorf("%d of %d first scrapes were in one second", most, nodes)
		}
		listed := func() int { return len(slices.Collect(pods.List("", samplestore.Key{}))) }
		time.Sleep(10*time.Second + warmUpInterval)
		synctest.Wait()
		if has, counts := f.source.HasRates(); has {
			t.Errorf("%s, although only %d of %d pods have two samples", counts, listed(), nodes*10)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := listed(); got != nodes*10 {
			t.Errorf("%d pods are listed as soon as all have two samples, want %d", got, nodes*10)
		}
		if has, counts := f.source.HasRates(); !has {
			t.Errorf("no rates when all pods are listed: %s", counts)
		}
		// The interval is kept from now on.
		time.Sleep(time.Minute)
		since := time.Now()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for i := range nodes {
			if got := len(f.times(f.name(i), since)); got < 19 || got > 21 {
				t.Errorf("%s was scraped %d times in 20 intervals", f.name(i), got)
			}
		}
	})
}

// TestIntervalChangeInWarmUp checks that a change of the interval neither moves the first
// scrapes nor makes nodes that warm up start together.
func TestIntervalChangeInWarmUp(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		const nodes = 200
		f := newBubble(t, testSettings(), certificate, withoutMemory)
		begin := time.Now()
		f.add(nodes)
		time.Sleep(time.Second)
		cfg := testSettings()
		cfg.TLS, cfg.Interval = v1alpha1.KubeletTLSInsecureSkipTLSVerify, time.Minute
		mustApply(t, f.source, cfg)
		time.Sleep(firstSpread)
		synctest.Wait()
		for i := range nodes {
			if got := len(f.times(f.name(i), begin)); got != 1 {
				t.Fatalf("%s was scraped %d times at first, want once", f.name(i), got)
			}
		}
		cfg.Interval = 20 * time.Second
		mustApply(t, f.source, cfg)
		since := time.Now()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		together := map[time.Time]int{}
		for i := range nodes {
			for _, at := range f.times(f.name(i), since) {
				together[at.Truncate(grid)]++
			}
		}
		for at, n := range together {
			if n > 2*nodes/8 {
				t.Errorf("%d of %d scrapes started together, %s after the start", n, nodes, at.Sub(begin))
			}
		}
	})
}

// TestWarmUpEnds checks that a pod that never has a rate does not shorten the interval
// for ever.
func TestWarmUpEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		f := newBubble(t, testSettings(), certificate, withoutMemory)
		f.add(1)
		time.Sleep(warmUpTime + 15*time.Second)
		since := time.Now()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := len(f.times(f.name(0), since)); got != 20 {
			t.Errorf("scraped %d times in 20 intervals", got)
		}
	})
}

// TestTracksDriftingPhase checks that scrapes closely follow the refreshes of kubelets
// whose periods differ.
func TestTracksDriftingPhase(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		const nodes, settle, total, refreshPeriod = 20, 5 * time.Minute, 20 * time.Minute, 10 * time.Second
		begin := time.Now()
		samples := map[string][]time.Time{}
		r := rand.New(rand.NewPCG(3, 4))
		for i := range nodes {
			at := begin.Add(-time.Duration(r.Float64() * float64(refreshPeriod)))
			name := fmt.Sprintf("n%03d", i)
			for at.Before(begin.Add(total)) {
				samples[name] = append(samples[name], at)
				at = at.Add(refreshPeriod + 100*time.Millisecond + time.Duration(r.Float64()*float64(3900*time.Millisecond)))
			}
		}
		sampleAt := func(node string, at time.Time) time.Time {
			next, _ := slices.BinarySearchFunc(samples[node], at.Add(1), time.Time.Compare)
			return samples[node][next-1]
		}
		f := newBubble(t, testSettings(), certificate, func(node string, w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, "node_cpu_usage_seconds_total %d %d\n", time.Now().Unix(), sampleAt(node, time.Now()).UnixMilli())
		})
		f.add(nodes)
		time.Sleep(settle)
		since := time.Now()
		time.Sleep(total - settle)
		synctest.Wait()
		var age time.Duration
		scrapes := 0
		for i := range nodes {
			times := f.times(f.name(i), since)
			if len(times) < 56 || len(times) > 61 {
				t.Errorf("%s was scraped %d times in 60 intervals", f.name(i), len(times))
			}
			for _, at := range times {
				scrapes++
				age += at.Sub(sampleAt(f.name(i), at))
			}
		}
		// Blind scrapes find them 6.1 s old.
		if mean := age / time.Duration(scrapes); mean > 4500*time.Millisecond {
			t.Errorf("samples were %s old on average when they were read", mean)
		}
		f.source.mu.Lock()
		defer f.source.mu.Unlock()
		tracked := 0
		for _, target := range f.source.targets {
			if target.refreshes.Tracks(f.source.settings.Interval) {
				tracked++
			}
		}
		if tracked < nodes-2 {
			t.Errorf("%d of %d nodes are tracked", tracked, nodes)
		}
	})
}

func TestRunEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		f := newBubble(t, testSettings(), certificate, func(_ string, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		f.add(30)
		time.Sleep(5 * time.Second)
		begin := time.Now()
		f.stop()
		if took := time.Since(begin); took > 0 {
			t.Errorf("Run took %s to end", took)
		}
		if got := f.source.gaugeInFlight(); got != 0 {
			t.Errorf("%d scrapes running after Run", got)
		}
		if err := f.source.Alive(time.Now().Add(time.Hour)); err != nil {
			t.Errorf("Alive() after Run = %v", err)
		}
	})
}
