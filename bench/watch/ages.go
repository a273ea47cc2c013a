// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	quantity "k8s.io/apimachinery/pkg/api/resource"

	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

// agedMetrics is the number of external metrics whose value is the time at which it was exposed: several, as the
// intervals of queries start at different times.
const agedMetrics = 20

// The prefixes of the metrics.
const knownPrefix, hiddenPrefix = "", "hidden_"

// agedRules make two metrics of each such series: one whose query lets serving know the times of its samples, so
// that it follows the scrapes, and one whose query does not.
const agedRules = `    - seriesQuery: '{__name__=~"^exposed_.*"}'
      resources: {namespaced: false}
      metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>})'
    - seriesQuery: '{__name__=~"^exposed_.*"}'
      resources: {namespaced: false}
      name: {as: "` + hiddenPrefix + `$0"}
      metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) + 0 * scalar(max(<<.Series>>))'
`

func agedSeries() string {
	var b strings.Builder
	for i := range agedMetrics {
		fmt.Fprintf(&b, "exposed_%02d %d +1\n", i, time.Now().Unix())
	}
	return b.String()
}

// agedWatch is a watch of such a metric. It is a streams.Handler.
type agedWatch struct {
	response
	lines lines
	// exposed is the newest value, and received when it came.
	exposed, received time.Time
	ages              figures.Ages
}

func (w *agedWatch) Body(piece []byte, at time.Time) {
	w.tally.mu.Lock()
	defer w.tally.mu.Unlock()
	w.keepBody(piece)
	w.lines.add(piece, func(line []byte) {
		_, rest, _ := bytes.Cut(line, []byte(`"value":"`))
		text, _, found := bytes.Cut(rest, []byte(`"`))
		if q, err := quantity.ParseQuantity(string(text)); found && err == nil {
			w.until(at)
			w.exposed = time.UnixMilli(q.MilliValue())
		}
	})
}

func (w *agedWatch) End(err error, _ time.Time) { w.tally.fail(err) }

// until counts the age of the newest value since it came, or since the measurement began.
func (w *agedWatch) until(at time.Time) {
	if began := w.tally.began; w.tally.recording && !w.exposed.IsZero() {
		if w.received.Before(began) {
			w.received = began
		}
		w.ages.Add(w.received.Sub(w.exposed), at.Sub(w.exposed))
	}
	w.received = at
}

// runAges returns the ages at watchers of values that Prometheus scrapes, by the prefix of the metrics.
func runAges(ctx context.Context, e *environment, f *flags, to endpoint, say progress.Say) (map[string]*figures.Ages, error) {
	s, err := dial(ctx, e, to, external, proxiedSession, 1)
	if err != nil {
		return nil, err
	}
	defer s.close()
	t, all := s.tallies[0], map[string][]*agedWatch{}
	for _, prefix := range []string{knownPrefix, hiddenPrefix} {
		for i := range agedMetrics {
			w := &agedWatch{response: response{tally: t}}
			all[prefix] = append(all[prefix], w)
			path := fmt.Sprintf("/apis/external.metrics.k8s.io/v1beta1/namespaces/default/%sexposed_%02d?watch=true", prefix, i)
			if err := s.connections[0].Get(path, s.fields(s.user(0)), w); err != nil {
				return nil, fmt.Errorf("watch metric %d: %w", i, err)
			}
		}
	}
	// The times of scrapes are known after a few.
	if err := progress.Wait(ctx, 6*f.interval); err != nil {
		return nil, err
	}
	t.record(true, time.Now())
	if err := progress.Wait(ctx, 4*f.interval); err != nil {
		return nil, err
	}
	t.mu.Lock()
	ages := map[string]*figures.Ages{}
	for prefix, watches := range all {
		ages[prefix] = &figures.Ages{}
		for _, w := range watches {
			w.until(time.Now())
			ages[prefix].Merge(&w.ages)
		}
	}
	t.mu.Unlock()
	say("ages of values at watchers, p50 and p99: %s, and where the times of samples are not known %s",
		quantiles(ages[knownPrefix]), quantiles(ages[hiddenPrefix]))
	return ages, t.err()
}

func reportAges(out io.Writer, f *flags, ages map[string]*figures.Ages) {
	_, _ = fmt.Fprintf(out, "\nAges at watchers of the values of %d external metrics, which Prometheus scrapes and serving evaluates each %v\n\n", agedMetrics, f.interval)
	figures.Table(out, [][]string{
		{"", "p50, p99"},
		{"the times of samples cannot be known of the query", quantiles(ages[hiddenPrefix])},
		{"the query is evaluated after each scrape", quantiles(ages[knownPrefix])},
	})
}

func quantiles(ages *figures.Ages) string {
	return figures.Sec.Format(ages.Quantile(0.5).Seconds()) + ", " + figures.Sec.Format(ages.Quantile(0.99).Seconds())
}
