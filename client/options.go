// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
)

const (
	defaultMaxAge       = 90 * time.Second
	defaultPollInterval = 15 * time.Second
	defaultRetryWatch   = 5 * time.Minute
	defaultTimeout      = 30 * time.Second
)

// Options of a Watcher. The zero value is ready to use.
type Options struct {
	// LabelSelector and FieldSelector select objects, in kubectl's syntax. The fields are metadata.name and
	// metadata.namespace. Empty selects all.
	LabelSelector, FieldSelector string

	// MaxAge is how long an object is kept without a new data point. Set it to at least three times the interval at
	// which the implementation scrapes. Default 90 s.
	MaxAge time.Duration

	// PollInterval is the time between two lists while the API is polled, with a jitter of ±50 %. One and a half times
	// of it must be less than MaxAge. Default 15 s.
	PollInterval time.Duration

	// RetryWatch is the time before a rejected watch is tried again, and between two requests for discovery, with a
	// jitter of ±50 %. Default 5 min.
	RetryWatch time.Duration

	// RequestTimeout limits a list, and a third of it the discovery of one version, so that a version that hangs leaves
	// time for the next. Watches have no timeout. It is in real time, whatever Clock says. Default 30 s.
	RequestTimeout time.Duration

	// Clock and Random (uniform in [0,1), for jitter) are for tests. Default: real time, math/rand.
	Clock  clock.Clock
	Random func() float64
}

// complete returns the options with defaults for zero values, or an error that names the invalid option.
func (o Options) complete() (Options, error) {
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"MaxAge", &o.MaxAge, defaultMaxAge},
		{"PollInterval", &o.PollInterval, defaultPollInterval},
		{"RetryWatch", &o.RetryWatch, defaultRetryWatch},
		{"RequestTimeout", &o.RequestTimeout, defaultTimeout},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
		if *d.value < time.Second {
			return o, fmt.Errorf("option %s is %v: give at least 1s, or 0 for the default of %v", d.name, *d.value, d.def)
		}
	}
	if o.PollInterval+o.PollInterval/2 >= o.MaxAge {
		return o, fmt.Errorf("option PollInterval is %v: with MaxAge %v, objects would expire between two lists; "+
			"give less than two thirds of MaxAge", o.PollInterval, o.MaxAge)
	}
	if _, err := labels.Parse(o.LabelSelector); err != nil {
		return o, fmt.Errorf("option LabelSelector %q: %w", o.LabelSelector, err)
	}
	if _, err := fields.ParseSelector(o.FieldSelector); err != nil {
		return o, fmt.Errorf("option FieldSelector %q: %w", o.FieldSelector, err)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	return o, nil
}

// jitter returns a random duration in [d/2, 3d/2), so that clients which were cut off together do not return together.
func (o *Options) jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.5 + o.Random()))
}
