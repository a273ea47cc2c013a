// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

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
		for _, one := range [][2]string{
			{"cpu", fmt.Sprintf("profile?seconds=%d", max(1, int(f.measure.Seconds())-1))},
			{"heap", "heap?gc=1"}, {"goroutine", "goroutine"},
		} {
			file := filepath.Join(f.profiles, name+"."+one[0])
			content, err := e.serving.Get(ctx, "/debug/pprof/"+one[1])
			if err == nil {
				err = os.WriteFile(file, content, 0o600)
			}
			if err != nil {
				say("no profile %s: %v", file, err)
			}
		}
	}()
	return func() { <-done }
}
