// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// freshnessPeriod is how often the gauge of the newest sample is brought up to
// date: often, compared with the 10 to 20 seconds after which samples renew.
const freshnessPeriod = 5 * time.Second

// freshness tells in a metric how old the data is that this pod serves. Readiness
// does not: a pod that has lost its kubelets stays ready, see firstReadiness.
type freshness struct {
	source reporter
	clock  clock.WithTicker
}

// run keeps the gauge up to date until the context ends.
func (f *freshness) run(ctx context.Context) {
	ticker := f.clock.NewTicker(freshnessPeriod)
	defer ticker.Stop()
	for {
		f.update()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// update sets the gauge; 0 stands for no sample.
func (f *freshness) update() {
	newest := f.source.Report().NewestSample
	if newest.IsZero() {
		newestSample.Set(0)
		return
	}
	newestSample.Set(float64(newest.UnixMilli()) / 1000)
}
