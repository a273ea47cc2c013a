// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// samples is a reply of so many.
func samples(n int) func(context.Context, string, time.Time) (*Result, error) {
	return func(_ context.Context, _ string, at time.Time) (*Result, error) {
		return &Result{Time: at, Samples: make([]Sample, n)}, nil
	}
}

// held returns how many questions and samples there are.
func (w *world) held() (questions, samples int) {
	w.Evaluator.mu.Lock()
	defer w.Evaluator.mu.Unlock()
	return len(w.cache.entries), w.cache.total.samples
}

func TestQuestionsAreForgotten(t *testing.T) {
	inWorld(t, Limits{IdleTime: time.Minute}, func(t *testing.T, w *world, s *source) {
		s.set(samples(10))
		stop := w.subscribe(asked("followed"), func(*Result, error) {})
		long := Query{Source: "p", Expression: "long", Interval: time.Hour}
		for _, q := range []Query{asked("once"), asked("often"), long} {
			_, _ = w.ask(q)
		}
		for range 20 {
			time.Sleep(15 * time.Second)
			_, _ = w.ask(asked("often"))
		}
		if questions, samples := w.held(); questions != 3 || samples != 30 {
			t.Errorf("%d questions with %d samples", questions, samples)
		}
		stop()
		time.Sleep(5 * time.Hour)
		if questions, samples := w.held(); questions != 0 || samples != 0 {
			t.Errorf("in the end %d questions with %d samples", questions, samples)
		}
		w.Evaluator.mu.Lock()
		defer w.Evaluator.mu.Unlock()
		if len(w.queues) != 0 || len(w.cache.tenants) != 0 || w.cache.total != (usage{}) {
			t.Errorf("in the end %d sources, %d owners, %+v", len(w.queues), len(w.cache.tenants), w.cache.total)
		}
	})
}

func TestMostQuestions(t *testing.T) {
	inWorld(t, Limits{MaxQueries: 5}, func(t *testing.T, w *world, s *source) {
		defer w.subscribe(asked("followed"), func(*Result, error) {})()
		for i := range 100 {
			w.mustAsk(asked(fmt.Sprint(i)))
			w.mustAsk(asked("often"))
			if questions, _ := w.held(); questions > 3 {
				t.Fatalf("%d questions", questions)
			}
		}
		for i := range 5 {
			defer w.subscribe(asked(fmt.Sprint("followed", i)), func(*Result, error) {})()
		}
		synctest.Wait()
		if _, err := w.ask(asked("new")); reasonOf(err) != ReasonOverloaded {
			t.Errorf("where all are followed: %v", err)
		}
	})
}

func TestMostSamplesTogether(t *testing.T) {
	inWorld(t, Limits{MaxCachedSamples: 160}, func(t *testing.T, w *world, s *source) {
		s.set(samples(40))
		for i := range 10 {
			if _, err := w.Query(t.Context(), asked(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			if _, samples := w.held(); samples > 80 {
				t.Fatalf("%d samples", samples)
			}
		}
		var mu sync.Mutex
		var reasons []Reason
		for _, e := range []string{"x", "y", "z"} {
			defer w.subscribe(asked(e), func(_ *Result, err error) {
				mu.Lock()
				defer mu.Unlock()
				reasons = append(reasons, reasonOf(err))
			})()
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		if len(reasons) != 3 || reasons[2] != ReasonTooLarge {
			t.Errorf("beyond what is followed: %q", reasons)
		}
	})
}

func TestLastAnswersAge(t *testing.T) {
	inWorld(t, Limits{MaxResultAge: 10 * time.Minute}, func(t *testing.T, w *world, s *source) {
		s.set(samples(40))
		defer w.subscribe(asked("a"), func(*Result, error) {})()
		synctest.Wait()
		s.set(down)
		time.Sleep(9 * time.Minute)
		if _, samples := w.held(); samples != 40 {
			t.Errorf("%d samples", samples)
		}
		time.Sleep(2 * time.Minute)
		if _, samples := w.held(); samples != 0 {
			t.Errorf("%d samples that are too old", samples)
		}
	})
}
