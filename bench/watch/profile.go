// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

// profile takes profiles of serving during the measurement that begins now. The returned
// function waits for them.
func profile(ctx context.Context, e *environment, f *flags, name string, say progress.Say) (wait func()) {
	if f.profiles == "" {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := e.serving.SaveProfiles(ctx, f.profiles, name,
			cluster.CPUProfile(f.measure-time.Second), cluster.HeapProfile, cluster.Profile{Name: "goroutine", Path: "goroutine"})
		if err != nil {
			say("profiles are missing: %v", err)
		}
	}()
	return func() { <-done }
}
