// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/bench/machine"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

// way is a path of requests to serving, with its results.
type way struct {
	name string
	ask  func(ctx context.Context, path string) error

	took     figures.Durations
	failures []error
	// queries is the number of Prometheus' queries during span.
	queries int
	span    time.Duration
	// cpu of serving, rss of it afterwards, in bytes.
	cpu  time.Duration
	rss  int64
	busy float64
}

// measure sends a request of each autoscaler once per interval, each at its own offset.
func (one *way) measure(ctx context.Context, e *environment, f *flags) error {
	queries, err := e.prometheus.Queries(ctx)
	if err != nil {
		return err
	}
	cpu, err := machine.CPU(e.serving.PID())
	if err != nil {
		return err
	}
	load, err := machine.ReadLoad()
	if err != nil {
		return err
	}
	began := time.Now()
	var mu sync.Mutex
	var asking sync.WaitGroup
	for i := range f.autoscalers {
		asking.Go(func() {
			offset := f.interval * time.Duration(i) / time.Duration(f.autoscalers)
			for turn := range f.intervals {
				if progress.Wait(ctx, time.Until(began.Add(offset+f.interval*time.Duration(turn)))) != nil {
					return
				}
				sent := time.Now()
				err := one.ask(ctx, path(f, i))
				took := time.Since(sent)
				mu.Lock()
				one.took.Add(took)
				if err != nil {
					one.failures = append(one.failures, err)
				}
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return one.settle(ctx, e, began, queries, cpu, load)
}

// settle records the cost of the time since began.
func (one *way) settle(ctx context.Context, e *environment, began time.Time, queries int, cpu time.Duration, load machine.Load) error {
	one.span = time.Since(began)
	now, err := e.prometheus.Queries(ctx)
	if err != nil {
		return err
	}
	one.queries = now - queries
	used, err := machine.CPU(e.serving.PID())
	if err != nil {
		return err
	}
	one.cpu = used - cpu
	if one.rss, err = machine.RSS(e.serving.PID()); err != nil {
		return err
	}
	later, err := machine.ReadLoad()
	if err != nil {
		return err
	}
	one.busy = later.Since(load)
	if len(one.failures) > 0 {
		return fmt.Errorf("%d of %d requests failed, such as: %w", len(one.failures), one.took.Len(), one.failures[0])
	}
	return nil
}

func askDirectly(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	header := cluster.Header("load:autoscalers", false)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", answer.Status, body)
	}
	return err
}
