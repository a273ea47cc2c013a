// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

// profile starts to take profiles of serving, one after the other. The returned function waits
// for them.
func profile(ctx context.Context, e *environment, f *flags, name string, say progress.Say, profiles ...cluster.Profile) (wait func()) {
	if f.profiles == "" {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.serving.SaveProfiles(ctx, f.profiles, name, profiles...); err != nil {
			say("profiles are missing: %v", err)
		}
	}()
	return func() { <-done }
}
