// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// stallTimeout is for how long a client may take nothing of what there is for it:
// several times what a pause for garbage or a slow network takes, and short against
// the age of what it would then be given.
const stallTimeout = time.Minute

// watchSettings are how the APIs are watched.
type watchSettings struct {
	enabled bool
	limits  stream.Limits
	stream  stream.Settings
}

func watchSettingsFrom(spec *v1alpha1.WatchSpec) watchSettings {
	return watchSettings{
		enabled: spec.Mode == v1alpha1.WatchEnabled,
		limits: stream.Limits{
			Connections:    int(*spec.MaxConnections),
			PerUser:        int(*spec.MaxConnectionsPerUser),
			OpensPerSecond: float64(*spec.MaxOpensPerSecondPerUser),
			// A user may open at once what it may have open: after a restart of a
			// pod, or of the user, that is what comes.
			OpensBurst: int(max(*spec.MaxConnectionsPerUser, *spec.MaxOpensPerSecondPerUser)),
		},
		stream: stream.Settings{
			BookmarkInterval: spec.BookmarkInterval.Duration,
			MaxAge:           spec.MaxAge.Duration,
			StallTimeout:     stallTimeout,
		},
	}
}

// watches are the watches of all APIs.
type watches struct {
	admission *stream.Admission
	streams   *resourcemetrics.Streams
	group     *resourcemetrics.Group
	// values are the API groups of metric values.
	values []watchedGroup
}

// Apply implements watchTarget.
func (w *watches) Apply(s watchSettings) {
	w.admission.Apply(s.limits)
	w.streams.Apply(s.stream)
	w.group.ServeWatch(s.enabled)
	for _, g := range w.values {
		g.Apply(s.stream)
		g.ServeWatch(s.enabled)
	}
}

// drain refuses new watches and ends those that are open, spread over a time.
func (w *watches) drain(over time.Duration) {
	w.streams.Drain(over)
	for _, g := range w.values {
		g.Drain(over)
	}
}

// drain ends the watches while the server waits for its endpoints to be
// forgotten, so that clients reconnect to another pod.
//
// In the first quarter of that time nothing ends: whoever left then would be led
// to this pod again. In the last quarter clients read the end of their streams.
// From the second on a new watch is refused, with Retry-After; the answer closes
// the connection that leads here (see withLeaveOnShutdown).
type drain struct {
	shuttingDown <-chan struct{}
	delay        time.Duration
	clock        clock.Clock
	open         func() int
	end          func(over time.Duration)
}

func (d *drain) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-d.shuttingDown:
	}
	select {
	case <-ctx.Done():
		return
	case <-d.clock.After(d.delay / 4):
	}
	over := d.delay / 2
	if open := d.open(); open > 0 {
		klog.FromContext(ctx).Info("Shutdown ends the open watches; their clients reconnect to other pods", "watches", open, "over", over)
	}
	d.end(over)
}
