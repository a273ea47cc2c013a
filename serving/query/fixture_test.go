// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// source is a Source that answers with the number of times that it was asked, after
// a while, or as a test says.
type source struct {
	takes time.Duration
	reply func(ctx context.Context, expression string, at time.Time) (*Result, error)

	mu    sync.Mutex
	asked []string
	at    []time.Time
	// running and most count evaluations under way.
	running, most int
}

func (s *source) Evaluate(ctx context.Context, expression string, at time.Time) (*Result, error) {
	s.mu.Lock()
	s.asked, s.at = append(s.asked, expression), append(s.at, at)
	n := len(s.asked)
	s.running++
	s.most = max(s.most, s.running)
	reply := s.reply
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.running--
		s.mu.Unlock()
	}()
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if reply != nil {
		return reply(ctx, expression, at)
	}
	return number(at, float64(n)), nil
}

func (s *source) set(reply func(ctx context.Context, expression string, at time.Time) (*Result, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = reply
}

func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// number is an answer of one value.
func number(at time.Time, value float64) *Result {
	return &Result{Time: at, Samples: []Sample{{Value: value, Time: at}}}
}

// down is the failure of a source that cannot be reached.
func down(context.Context, string, time.Time) (*Result, error) {
	return nil, fmt.Errorf("query: %w", &Failure{Reason: ReasonConnectionFailed, Message: "connection refused"})
}

func rejected(context.Context, string, time.Time) (*Result, error) {
	return nil, &Failure{Reason: ReasonRejected, Message: "parse error"}
}

// world is a Desk in a bubble of its own time.
type world struct {
	*Evaluator
	t  testing.TB
	mu sync.Mutex
	of map[string]Source
}

func (w *world) source(name string) (Source, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.of[name]
	return s, ok
}

func (w *world) put(name string, s Source) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s == nil {
		delete(w.of, name)
		return
	}
	w.of[name] = s
}

// inWorld runs a test in a bubble whose source is `p`.
func inWorld(t *testing.T, limits Limits, test func(t *testing.T, w *world, s *source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		w := &world{t: t, of: map[string]Source{"p": s}}
		w.Evaluator = NewEvaluator(clock.RealClock{}, func() float64 { return 0 }, w.source, limits)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		test(t, w, s)
		cancel()
		running.Wait()
	})
}

func (w *world) subscribe(q Query, receive func(*Result, error)) (stop func()) {
	return w.Subscribe(q, time.Time{}, receive)
}

// asked is a question of the source `p`, of 15 s.
func asked(expression string) Query {
	return Query{Source: "p", Expression: expression, Interval: 15 * time.Second}
}

// toSlot sleeps until shortly after a slot of the question has begun.
func toSlot(q Query) {
	time.Sleep(slotsOf(q).untilNext(time.Now()) + 100*time.Millisecond)
}

func (w *world) ask(q Query) (float64, error) {
	w.t.Helper()
	a, err := w.Query(w.t.Context(), q)
	if err != nil {
		return 0, err
	}
	return a.Samples[0].Value, nil
}

// mustAsk returns the value of a question that must be answered.
func (w *world) mustAsk(q Query) float64 {
	w.t.Helper()
	v, err := w.ask(q)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// reasonOf is that of an error.
func reasonOf(err error) Reason {
	var f *Failure
	if !errors.As(err, &f) {
		return ""
	}
	return f.Reason
}
