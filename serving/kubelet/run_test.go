// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

// bubble is a number of nodes behind one server that is reached through pipes,
// so that it lives inside a bubble of testing/synctest: time passes only when
// all of it waits.
type bubble struct {
	source *Source
	conns  chan net.Conn
	close  sync.Once
	cancel context.CancelFunc
	ended  chan struct{}

	mu sync.Mutex
	// asked holds when each node was asked, by name.
	asked map[string][]time.Time
	// busy counts the requests under way, most its highest value.
	busy, most int
}

// Addr, Accept and Close make it a net.Listener.
func (f *bubble) Addr() net.Addr { return &net.TCPAddr{} }

func (f *bubble) Close() error {
	f.close.Do(func() { close(f.conns) })
	return nil
}

func (f *bubble) Accept() (net.Conn, error) {
	c, ok := <-f.conns
	if !ok {
		return nil, io.EOF
	}
	return c, nil
}

func (f *bubble) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case f.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newBubble runs a source inside a bubble. The handler gets the node's name.
func newBubble(t *testing.T, cfg Settings, certificate tls.Certificate, handle func(node string, w http.ResponseWriter, r *http.Request)) *bubble {
	t.Helper()
	f := &bubble{conns: make(chan net.Conn), ended: make(chan struct{}), asked: map[string][]time.Time{}}
	cfg.TLS = v1alpha1.KubeletTLSSkip
	var err error
	f.source, err = NewSource(Options{
		Store: point.NewStore(clock.RealClock{}, 90*time.Second), Clock: clock.RealClock{},
		RestConfig: &rest.Config{}, Dial: f.dial,
		// So that nothing is due at the very instants at which tests look.
		Rand: rand.New(rand.NewPCG(1, 2)),
	}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name := strings.TrimPrefix(r.URL.Path, "/")
			f.mu.Lock()
			f.asked[name] = append(f.asked[name], time.Now())
			f.busy++
			f.most = max(f.most, f.busy)
			f.mu.Unlock()
			defer func() { f.mu.Lock(); f.busy--; f.mu.Unlock() }()
			handle(name, w, r)
		}),
	}
	go func() {
		_ = server.Serve(tls.NewListener(f, &tls.Config{Certificates: []tls.Certificate{certificate}}))
	}()
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig())))
	go func() { f.source.Run(ctx); close(f.ended) }()
	t.Cleanup(func() {
		f.stop()
		if err := server.Shutdown(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	return f
}

// stop ends Run and waits for it.
func (f *bubble) stop() {
	f.cancel()
	<-f.ended
}

func (f *bubble) name(i int) string { return fmt.Sprintf("n%03d", i) }

// add sets nodes whose path tells the server their names.
func (f *bubble) add(n int) {
	for i := range n {
		f.source.SetNode(f.node(i))
	}
}

func (f *bubble) node(i int) *Node {
	n := testNode(f.name(i), "192.0.2.1")
	n.Path = "/" + n.Name
	n.Labels = map[string]string{"name": n.Name}
	return n
}

// times returns when a node was asked since `since`.
func (f *bubble) times(name string, since time.Time) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.asked[name]), func(t time.Time) bool { return t.Before(since) })
}

// busiest returns the most requests of all nodes in one second since `since`.
func (f *bubble) busiest(since time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	seconds := map[int64]int{}
	for _, times := range f.asked {
		for _, t := range times {
			if !t.Before(since) {
				seconds[t.Unix()]++
			}
		}
	}
	most := 0
	for _, n := range seconds {
		most = max(most, n)
	}
	return most
}

// inBubble runs a test inside a bubble; the certificate is made outside, as it
// needs no time that stands still.
func inBubble(t *testing.T, test func(t *testing.T, certificate tls.Certificate)) {
	certificate := newAuthority(t).issue(nil, "n1")
	synctest.Test(t, func(t *testing.T) { test(t, certificate) })
}

// unstamped answers without timestamps: there is no beat to follow.
func unstamped(_ string, w http.ResponseWriter, _ *http.Request) {
	_, _ = fmt.Fprintf(w, "container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p\"} %d\n", time.Now().Unix())
}

func TestSpread(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		const nodes = 60
		f := newBubble(t, testSettings(), certificate, unstamped)
		begin := time.Now()
		f.add(nodes)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for i := range nodes {
			if got := len(f.times(f.name(i), begin)); got != 40 {
				t.Errorf("%s was asked %d times in 40 intervals", f.name(i), got)
			}
		}
		if got := f.busiest(begin); got > nodes/15+2 {
			t.Errorf("%d requests in one second, of %d nodes in 15 s", got, nodes)
		}
		if primed, counts := f.source.Primed(); !primed {
			t.Errorf("not primed: %s", counts)
		}
	})
}

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
		cfg.TLS = v1alpha1.KubeletTLSSkip
		cfg.NodeSelector = labels.SelectorFromSet(labels.Set{"name": f.name(1)})
		if err := f.source.Apply(cfg); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if a, b, c := count(0, since), count(1, since), count(2, since); a != 0 || b != 4 || c != 0 {
			t.Errorf("asked %d, %d, %d times; want 0 (deleted), 4, 0 (not selected)", a, b, c)
		}
		if got := f.source.Report().Nodes; got != 1 {
			t.Errorf("%d nodes reported, want 1", got)
		}

		since = time.Now()
		f.source.SetNode(relabelled)
		f.source.SetNode(f.node(0)) // not selected either
		time.Sleep(time.Minute)
		if a, b := count(0, since), count(1, since); a != 0 || b != 0 {
			t.Errorf("asked %d, %d times; want 0 (not selected), 0 (relabelled)", a, b)
		}

		since = time.Now()
		cfg.NodeSelector = nil
		if err := f.source.Apply(cfg); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if a, b, c := count(0, since), count(1, since), count(2, since); a != 4 || b != 4 || c != 4 {
			t.Errorf("asked %d, %d, %d times; want 4 each: all are selected", a, b, c)
		}
	})
}

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
				t.Errorf("%s was asked %d times in 20 intervals", f.name(i), got)
			}
		}
		cfg.MaxConcurrent, cfg.TLS = 8, v1alpha1.KubeletTLSSkip
		if err := f.source.Apply(cfg); err != nil {
			t.Fatal(err)
		}
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

// TestHangingNodes lets most nodes hang: the others must not notice.
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
				t.Errorf("%s, which answers, was asked %d times in 40 intervals", f.name(i), len(times))
			}
			for j := 1; j < len(times); j++ {
				if gap := times[j].Sub(times[j-1]); gap > 20*time.Second {
					t.Errorf("%s, which answers, was not asked for %s", f.name(i), gap)
				}
			}
		}
		for i := healthy; i < nodes; i++ {
			if got := len(f.times(f.name(i), since)); got == 0 || got > 10 {
				t.Errorf("%s, which hangs, was asked %d times in 40 intervals, want some, at most 10", f.name(i), got)
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

// TestNodeRecovers lets a node hang for a while.
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
		// The longest backoff, and then each interval.
		time.Sleep(time.Minute)
		since := time.Now()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := len(f.times(f.name(0), since)); got != 20 {
			t.Errorf("asked %d times in 20 intervals after it recovered", got)
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
			t.Error("not asked within an interval at its new address")
		}
	})
}

// gaugeInFlight returns the number of scrapes under way.
func (s *Source) gaugeInFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight
}

func TestIntervalChange(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		const nodes = 60
		cfg := testSettings()
		f := newBubble(t, cfg, certificate, unstamped)
		cfg.TLS = v1alpha1.KubeletTLSSkip
		f.add(nodes)
		for _, interval := range []time.Duration{15 * time.Second, 5 * time.Second, time.Minute, 20 * time.Second} {
			cfg.Interval, cfg.Timeout = interval, 5*time.Second
			if err := f.source.Apply(cfg); err != nil {
				t.Fatal(err)
			}
			since := time.Now()
			time.Sleep(10 * interval)
			synctest.Wait()
			if got, most := f.busiest(since), nodes/int(interval.Seconds())+2; got > most {
				t.Errorf("interval %s: %d requests in one second, want at most %d", interval, got, most)
			}
			for i := range nodes {
				if got := len(f.times(f.name(i), since)); got < 9 || got > 11 {
					t.Errorf("interval %s: %s was asked %d times in 10 intervals", interval, f.name(i), got)
				}
			}
		}
	})
}

// TestLongInterval checks that a node has its first rates soon all the same.
func TestLongInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		cfg := testSettings()
		cfg.Interval = 10 * time.Minute
		f := newBubble(t, cfg, certificate, unstamped)
		begin := time.Now()
		f.add(20)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if primed, counts := f.source.Primed(); !primed {
			t.Errorf("not primed after two warm-up intervals: %s", counts)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for i := range 20 {
			if got := len(f.times(f.name(i), begin)); got < 13 || got > 15 {
				t.Errorf("%s was asked %d times in 12 intervals after the first two", f.name(i), got)
			}
		}
	})
}

// TestFollowsBeat checks that the scheduler asks just after a kubelet's beat.
func TestFollowsBeat(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		const nodes = 20
		begin := time.Now()
		offset := func(node string) time.Duration { return time.Duration(node[3]-'0') * time.Second }
		beatOf := func(node string) time.Time { // the last one
			first := begin.Add(offset(node) - beat)
			return first.Add(time.Since(first).Truncate(beat))
		}
		f := newBubble(t, testSettings(), certificate, func(node string, w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, "node_cpu_usage_seconds_total %d %d\n", time.Now().Unix(), beatOf(node).UnixMilli())
		})
		f.add(nodes)
		time.Sleep(5 * time.Minute)
		since := time.Now()
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		late, all := 0, 0
		for i := range nodes {
			times := f.times(f.name(i), since)
			if len(times) < 58 || len(times) > 61 {
				t.Errorf("%s was asked %d times in 60 intervals", f.name(i), len(times))
			}
			for _, at := range times {
				all++
				if at.Sub(begin.Add(offset(f.name(i))))%beat > 2*time.Second {
					late++
				}
			}
		}
		if late*10 > all {
			t.Errorf("%d of %d scrapes came more than 2 s after a beat", late, all)
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
			t.Errorf("%d scrapes under way, want none", got)
		}
		if got := f.source.Report().Nodes; got != 0 {
			t.Errorf("%d nodes, want none", got)
		}
	})
}

// TestReplacedNode checks that nothing is kept of a node with another UID.
func TestReplacedNode(t *testing.T) {
	inBubble(t, func(t *testing.T, certificate tls.Certificate) {
		f := newBubble(t, testSettings(), certificate, unstamped)
		f.add(1)
		time.Sleep(time.Minute)
		if primed, counts := f.source.Primed(); !primed {
			t.Fatalf("not primed: %s", counts)
		}
		replaced := f.node(0)
		replaced.UID = "uid-2"
		f.source.SetNode(replaced)
		if report := f.source.Report(); report.Pending != 1 || report.Nodes != 1 {
			t.Errorf("report of the node that replaced another: %+v", report)
		}
		if primed, counts := f.source.Primed(); primed {
			t.Errorf("primed with the samples of another machine: %s", counts)
		}
		time.Sleep(time.Minute)
		if primed, counts := f.source.Primed(); !primed {
			t.Errorf("not primed: %s", counts)
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
			t.Errorf("%d scrapes under way after Run", got)
		}
		if err := f.source.Alive(time.Now().Add(time.Hour)); err != nil {
			t.Errorf("Alive() after Run = %v", err)
		}
	})
}
