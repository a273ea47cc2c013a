// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command queries measures custom and external metrics of the serving component side by side
// with prometheus-adapter, by the requests of many autoscalers, on loopback, with the same
// Prometheus and the same kube-apiserver. See bench/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

func main() { progress.Main("queries", parse, run) }

func run(ctx context.Context, f *flags, folder string, out io.Writer, say progress.Say) (err error) {
	field, err := f.selectedContestants()
	if err != nil {
		return err
	}
	for _, one := range field {
		if _, err := os.Stat(one.binary(f)); err != nil {
			return fmt.Errorf("find the binary of %s (make bench-queries builds it): %w", one.name, err)
		}
	}
	e, err := startEnvironment(ctx, f, folder, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	if err := compareAll(ctx, e, f, field); err != nil {
		return err
	}
	say("all values are equal")
	all := map[string][]results{}
	for _, k := range kinds {
		for _, autoscalers := range f.autoscalers {
			r, err := measureAll(ctx, e, f, k, autoscalers, field, say)
			if err != nil {
				return fmt.Errorf("%s, %d autoscalers, %w", k.name, autoscalers, err)
			}
			all[k.name] = append(all[k.name], r)
		}
	}
	report(out, f, field, all)
	if f.document == "" || !recordable(f, field) {
		return nil
	}
	if err := write(f, field, all); err != nil {
		return err
	}
	say("the tables are in %s", filepath.Clean(f.document))
	return nil
}

// compareAll checks that all contestants return the same values.
func compareAll(ctx context.Context, e *environment, f *flags, field []contestant) error {
	values := reference{}
	for _, one := range field {
		server, err := e.start(ctx, f, one)
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		if err := errors.Join(values.compare(ctx, f, server), server.Stop(), e.stopBehind()); err != nil {
			return fmt.Errorf("compare the values of %s: %w", one.name, err)
		}
	}
	return nil
}

// measureAll measures all rounds of a kind of metrics and a number of autoscalers, with a new
// process for each measurement.
func measureAll(ctx context.Context, e *environment, f *flags, k kind, autoscalers int, field []contestant, say progress.Say) (results, error) {
	r := results{autoscalers: autoscalers, rounds: map[string][]values{}}
	for round := range f.rounds {
		// Each contestant is as often before the others as after them.
		order := k.of(field)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, one := range order {
			v, err := measure(ctx, e, f, k, autoscalers, one, say)
			if err != nil {
				return r, fmt.Errorf("round %d, %s: %w", round+1, one.name, err)
			}
			r.rounds[one.name] = append(r.rounds[one.name], v)
		}
	}
	return r, nil
}

func measure(ctx context.Context, e *environment, f *flags, k kind, autoscalers int, one contestant, say progress.Say) (v values, err error) {
	server, err := e.start(ctx, f, one)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop(), e.stopBehind()) }()
	l := &load{server: server, kind: k, autoscalers: autoscalers}
	if v, err = l.measure(ctx, e, f); err != nil {
		return nil, err
	}
	say("%s, %d autoscalers, %s: p50 %.1f ms, slowest %.1f ms, %.0f queries per interval", k.name, autoscalers, one.name, 1000*v[p50], 1000*v[slowest], v[queries])
	if len(l.failures) > 0 {
		say("%.0f of %.0f requests failed, such as: %v", v[failed], v[requested], l.failures[0])
	}
	return v, nil
}
