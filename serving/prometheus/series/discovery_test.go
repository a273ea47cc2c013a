// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/utils/clock"
)

// asked is one lookup as a server received it.
type asked struct {
	Matcher  string
	At       time.Duration
	From, To time.Duration
}

// server has series with the time of their newest samples, since the test began.
type server struct {
	mu     sync.Mutex
	begin  time.Time
	asked  []asked
	fails  map[string]error
	hangs  map[string]bool
	takes  map[string]time.Duration
	series map[string]map[string]time.Duration // by matcher, by name
	labels []string
}

func newServer() *server {
	return &server{begin: time.Now(), fails: map[string]error{}, hangs: map[string]bool{}, takes: map[string]time.Duration{}, series: map[string]map[string]time.Duration{}, labels: []string{"pod", "namespace"}}
}

func (s *server) lookup(ctx context.Context, matcher string, from, to time.Time, visit func(map[string]string)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, asked{matcher, time.Since(s.begin), from.Sub(s.begin), to.Sub(s.begin)})
	if s.hangs[matcher] {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return ctx.Err()
	}
	if takes := s.takes[matcher]; takes > 0 {
		s.mu.Unlock()
		time.Sleep(takes)
		s.mu.Lock()
	}
	if err := s.fails[matcher]; err != nil {
		return err
	}
	for name, newest := range s.series[matcher] {
		if at := s.begin.Add(newest); at.Before(from) || at.After(to) {
			continue
		}
		labels := map[string]string{"__name__": name}
		for _, l := range s.labels {
			labels[l] = "value"
		}
		visit(labels)
		clear(labels)
	}
	return nil
}

// has sets the newest sample of a series.
func (s *server) has(matcher, name string, newest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.series[matcher] == nil {
		s.series[matcher] = map[string]time.Duration{}
	}
	s.series[matcher][name] = newest
}

func (s *server) fail(matcher string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails[matcher] = err
}

// lookups returns the lookups since the last call.
func (s *server) lookups() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asked
	s.asked = nil
	return a
}

// run has f run beside a Discovery, in a bubble.
func run(t *testing.T, f func(*testing.T, *server, *Discovery, func() []string)) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		d := NewDiscovery(s.lookup, clock.RealClock{}, Settings{Interval: time.Minute, MaxAge: 5 * time.Minute})
		var mu sync.Mutex
		var told []string
		d.OnChange(func(m string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, m)
		})
		news := func() []string {
			mu.Lock()
			defer mu.Unlock()
			n := told
			told = nil
			slices.Sort(n)
			return n
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.Run(ctx)
		}()
		f(t, s, d, news)
		cancel()
		<-done
	})
}

func names(f Found) []string {
	var n []string
	for _, s := range f.Series {
		n = append(n, s.Name)
	}
	return n
}

func TestDiscovery(t *testing.T) {
	run(t, func(t *testing.T, s *server, d *Discovery, news func() []string) {
		s.has("a", "one", 0)
		s.has("a", "two", 0)
		d.SetMatchers([]string{"a", "b", "a"})
		synctest.Wait()
		// At once, each by itself.
		want := []asked{{"a", 0, -5 * time.Minute, 0}, {"b", 0, -5 * time.Minute, 0}}
		if diff := cmp.Diff(want, s.lookups(), cmpopts.SortSlices(func(x, y asked) bool { return x.Matcher < y.Matcher })); diff != "" {
			t.Errorf("lookups (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"a", "b"}, news()); diff != "" {
			t.Errorf("news (-want +got):\n%s", diff)
		}
		found := d.Found("a")
		wantSeries := []Series{{"one", []string{"namespace", "pod"}, 1}, {"two", []string{"namespace", "pod"}, 1}}
		if diff := cmp.Diff(wantSeries, found.Series); diff != "" || found.Err != nil || found.Truncated {
			t.Errorf("found %+v (-want +got):\n%s", found, diff)
		}
		if !found.Series[0].Has("pod") || found.Series[0].Has("node") {
			t.Error("Has does not know the labels")
		}
		if got := d.Found("b"); got.Time.IsZero() || got.Err != nil || len(got.Series) > 0 {
			t.Errorf("found %+v", got)
		}

		// Later lookups request only what is new, and report nothing if there is nothing.
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for _, lookup := range s.lookups() {
			if window := lookup.To - lookup.From; window > 2*time.Minute || lookup.At == 0 {
				t.Errorf("lookup %+v goes back over %s", lookup, window)
			}
		}
		if n := news(); n != nil {
			t.Errorf("news of %v", n)
		}
		// The two of the beginning are not in these lookups, and stay.
		if got := names(d.Found("a")); len(got) != 2 {
			t.Errorf("series %v after two minutes", got)
		}
		s.has("a", "three", 2*time.Minute)
		s.has("a", "one", 8*time.Minute)
		time.Sleep(8 * time.Minute)
		synctest.Wait()
		// "two" is older than MaxAge, and two intervals at most.
		found = d.Found("a")
		if diff := cmp.Diff([]string{"one"}, names(found)); diff != "" {
			t.Errorf("series (-want +got):\n%s", diff)
		}
		// "three" had samples later than "two", and has none either.
		if ended := found.Ended.Sub(s.begin); ended < 2*time.Minute || ended > 4*time.Minute {
			t.Errorf("the last series ended after %s", ended)
		}
		if n := news(); len(n) < 2 || n[0] != "a" {
			t.Errorf("news of %v", n)
		}
	})
}

// An edited rule's series are there at once, and the old one's are forgotten.
func TestSetMatchers(t *testing.T) {
	run(t, func(t *testing.T, s *server, d *Discovery, news func() []string) {
		d.SetMatchers([]string{"old"})
		synctest.Wait()
		time.Sleep(time.Second)
		news()
		s.has("new", "n", time.Second)
		d.SetMatchers([]string{"new"})
		synctest.Wait()
		if got := names(d.Found("new")); len(got) != 1 || !slices.Equal(news(), []string{"new"}) {
			t.Errorf("series %v", got)
		}
		if got := d.Found("old"); !got.Time.IsZero() {
			t.Errorf("the old one: %+v", got)
		}
		s.lookups()
		time.Sleep(10 * time.Minute)
		for _, lookup := range s.lookups() {
			if lookup.Matcher != "new" {
				t.Errorf("lookup %+v", lookup)
			}
		}
	})
}

// A matcher that fails, or hangs, stops no other. What was known stays, and the failure is reported once.
func TestDiscoveryFailures(t *testing.T) {
	run(t, func(t *testing.T, s *server, d *Discovery, news func() []string) {
		matchers := []string{"bad", "good"}
		s.has("good", "g", 0)
		s.has("bad", "b", 0)
		s.hangs["hanging"] = true
		d.SetMatchers(append(matchers, "hanging"))
		synctest.Wait()
		news()
		s.fail("bad", errors.New("out of memory"))
		time.Sleep(time.Hour)
		synctest.Wait()
		bad, good := d.Found("bad"), d.Found("good")
		if bad.Err == nil || len(bad.Series) != 1 || time.Since(bad.Time) < 59*time.Minute {
			t.Errorf("the failing one: %+v", bad)
		}
		if good.Err != nil || time.Since(good.Time) > time.Minute {
			t.Errorf("the good one: %+v", good)
		}
		if n := news(); !slices.Equal(n, []string{"bad", "good"}) {
			t.Errorf("news of %v, want the first failure and that g has gone", n)
		}
		// The first retry is soon, then they are rarer, up to ten minutes.
		var last time.Duration
		var waits []time.Duration
		for _, lookup := range s.lookups() {
			if lookup.Matcher == "bad" {
				waits = append(waits, lookup.At-last)
				last = lookup.At
			}
		}
		if len(waits) < 8 || len(waits) > 16 || waits[len(waits)-1] != 10*time.Minute {
			t.Errorf("asked again after %v", waits)
		}
		s.fail("bad", nil)
		s.has("bad", "b", time.Since(s.begin))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := d.Found("bad"); got.Err != nil || time.Since(got.Time) > 10*time.Minute {
			t.Errorf("healed: %+v", got)
		}
		// A matcher that is no longer wanted ends its lookup.
		d.SetMatchers(matchers)
		synctest.Wait()
	})
}

func TestRestart(t *testing.T) {
	run(t, func(t *testing.T, s *server, d *Discovery, news func() []string) {
		s.has("a", "one", 0)
		d.SetMatchers([]string{"a"})
		synctest.Wait()
		time.Sleep(time.Second)
		s.lookups()
		s.mu.Lock()
		s.series["a"] = map[string]time.Duration{"two": 0}
		s.mu.Unlock()
		d.Restart()
		synctest.Wait()
		if got := names(d.Found("a")); !slices.Equal(got, []string{"two"}) {
			t.Errorf("series %v of the other server", got)
		}
		if got := s.lookups(); len(got) != 1 || got[0].To-got[0].From != 5*time.Minute {
			t.Errorf("lookups %+v", got)
		}
		// A shorter interval counts from now on.
		d.Apply(Settings{Interval: 5 * time.Second, MaxAge: 5 * time.Minute})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := s.lookups(); len(got) != 2 {
			t.Errorf("lookups %+v", got)
		}
	})
}

// Matchers are spread over the interval.
func TestSpread(t *testing.T) {
	run(t, func(t *testing.T, s *server, d *Discovery, _ func() []string) {
		var matchers []string
		for i := range 60 {
			matchers = append(matchers, fmt.Sprintf("{__name__=~%q}", fmt.Sprint("metric_", i)))
		}
		d.SetMatchers(matchers)
		time.Sleep(time.Minute)
		s.lookups()
		time.Sleep(time.Minute)
		perSecond := map[time.Duration]int{}
		for _, lookup := range s.lookups() {
			perSecond[lookup.At.Truncate(time.Second)]++
		}
		if most := slices.Max(slices.Collect(maps.Values(perSecond))); most > 8 {
			t.Errorf("%d of 60 lookups in one second", most)
		}
	})
}

// More series than anybody needs are cut, and that is said.
func TestTruncated(t *testing.T) {
	run(t, func(t *testing.T, s *server, d *Discovery, _ func() []string) {
		for i := range MaxSeries + 5 {
			s.has("all", fmt.Sprintf("metric_%d", i), 0)
		}
		d.SetMatchers([]string{"all"})
		synctest.Wait()
		if got := d.Found("all"); len(got.Series) != MaxSeries || !got.Truncated {
			t.Errorf("%d series, truncated: %v", len(got.Series), got.Truncated)
		}
	})
}

// Names without end are cut, however few they are.
func TestTruncatedBySize(t *testing.T) {
	l := newSeriesSet()
	long := strings.Repeat("x", 1<<20)
	for i := range 100 {
		l.visit(map[string]string{"__name__": fmt.Sprint("metric_", i), long: "y"})
	}
	if n := len(l.byKey); !l.truncated || n < 16 || n > 32 {
		t.Errorf("%d series are kept, truncated: %v", n, l.truncated)
	}
}

// Names that change with each lookup are kept within the limit of one, the same in each replica.
func TestKnownSeriesAreBoundedBySize(t *testing.T) {
	var kept [2][]string
	for replica := range kept {
		m := &matcher{}
		at := time.Now()
		truncated := false
		for lookup := range 5 {
			l := newSeriesSet()
			for i := range 20 {
				l.visit(map[string]string{"__name__": fmt.Sprintf("%d-%02d%s", lookup, i, strings.Repeat("x", 1<<20))})
			}
			truncated = m.merge(result{series: l, at: at}, Settings{MaxAge: time.Hour})
		}
		size := 0
		for key, k := range m.known {
			size += len(key) + len(k.Name)
			kept[replica] = append(kept[replica], k.Name[:4])
		}
		slices.Sort(kept[replica])
		if size > maxLookupSize || !truncated {
			t.Errorf("%d MB of names are kept, truncated: %t", size>>20, truncated)
		}
	}
	if diff := cmp.Diff(kept[0], kept[1]); diff != "" {
		t.Errorf("two replicas (-one +other):\n%s", diff)
	}
}

// What came of an answer that is too long is kept, and lookups that take long are rare.
func TestTruncatedByTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lookups atomic.Int32
		lookup := func(_ context.Context, _ string, _, _ time.Time, visit func(map[string]string)) error {
			lookups.Add(1)
			visit(map[string]string{"__name__": "up"})
			time.Sleep(time.Minute)
			return fmt.Errorf("read series: %w", ErrTruncated)
		}
		d := NewDiscovery(lookup, clock.RealClock{}, Settings{Interval: time.Minute, MaxAge: 5 * time.Minute})
		d.SetMatchers([]string{"all"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.Run(ctx)
		}()
		time.Sleep(time.Minute + time.Second)
		if got := d.Found("all"); !slices.Equal(names(got), []string{"up"}) || !got.Truncated || got.Err != nil {
			t.Errorf("found %+v", got)
		}
		time.Sleep(time.Hour)
		if n := lookups.Load(); n < 11 || n > 13 {
			t.Errorf("%d lookups of a minute in an hour", n)
		}
		if got := d.Found("all"); !slices.Equal(names(got), []string{"up"}) {
			t.Errorf("found %+v", got)
		}
		cancel()
		<-done
	})
}

func BenchmarkVisit(b *testing.B) {
	labels := map[string]string{"__name__": "http_requests_total", "namespace": "a", "pod": "b", "code": "200", "method": "GET", "instance": "10.0.0.1:80", "job": "j"}
	l := newSeriesSet()
	b.ReportAllocs()
	for b.Loop() {
		l.visit(labels)
	}
}
