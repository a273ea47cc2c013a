// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Latency is the distribution of the time between a request and its answer: lognormal,
// which has a long tail, as measured at real kubelets. The zero value is none.
type Latency struct {
	Median, P99 time.Duration
}

// SetLatency changes the latency of all answers to requests from now on.
func (f *Fleet) SetLatency(l Latency) error {
	distribution, err := l.distribution()
	if err != nil {
		return err
	}
	f.latency.Store(&distribution)
	return nil
}

// lognormal is a distribution of durations. The logarithm of a duration in nanoseconds is
// normally distributed.
type lognormal struct {
	mean, deviation float64
}

// distribution returns the lognormal distribution; the zero value stands for no latency.
func (l Latency) distribution() (lognormal, error) {
	if l == (Latency{}) {
		return lognormal{}, nil
	}
	if l.Median <= 0 || l.P99 < l.Median {
		return lognormal{}, fmt.Errorf("latency with median %v and p99 %v: the median must be positive, and the p99 not less", l.Median, l.P99)
	}
	return lognormal{
		mean:      math.Log(float64(l.Median)),
		deviation: math.Log(float64(l.P99)/float64(l.Median)) / normalQuantile(0.99),
	}, nil
}

// quantile returns the duration that a share of the answers does not exceed. The share must
// be between 0 and 1, both excluded.
func (l lognormal) quantile(share float64) time.Duration {
	if l == (lognormal{}) {
		return 0
	}
	return time.Duration(math.Exp(l.mean + l.deviation*normalQuantile(share)))
}

// normalQuantile is the quantile function of the standard normal distribution.
func normalQuantile(share float64) float64 { return math.Sqrt2 * math.Erfinv(2*share-1) }

// next returns the latency of the node's next answer. Each is a function of the seed, the
// node and the number of answers before.
func (l lognormal) next(n *Node) time.Duration {
	if l == (lognormal{}) {
		return 0
	}
	draw := fraction(mix(digest(n.seed, "latency") + n.answers.Add(1)*0x9e3779b97f4a7c15))
	// fraction may return 0, whose quantile would be infinitely small.
	return l.quantile(max(draw, 1e-9))
}

// delay waits for the latency of an answer. It returns false if the request has ended
// before: the client has left, or the fleet has stopped.
func (f *Fleet) delay(ctx context.Context, n *Node, fault *activeFault) bool {
	wait := fault.After
	if fault.Kind != Slow {
		wait = f.latency.Load().next(n)
	}
	if wait <= 0 {
		return true
	}
	timer := f.clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}
