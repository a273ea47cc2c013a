// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// Outage is the error of a question that is not answered. It unwraps to a Failure.
type EvaluationError struct {
	*Failure
	// Failures counts the intervals in a row, this one included, in which the
	// question was asked or followed and not answered; 0 where the request ended
	// before that was known.
	FailedIntervals int
	// Time is when this was found.
	Time time.Time
	// Last is the newest answer that the source gave; nil where there is none, or
	// none that was kept.
	LastResult *Result

	// cause is the error of the request's context.
	cause error
}

// Unwrap returns the Failure, and the context's error where the request ended.
func (o *EvaluationError) Unwrap() []error {
	if o.cause != nil {
		return []error{o.Failure, o.cause}
	}
	return []error{o.Failure}
}

// maxMessage is the longest message of a failure, in bytes.
const maxMessage = 500

// failureOf returns the Failure in an error, with its source and of bounded length.
func failureOf(source string, err error) *Failure {
	var f *Failure
	switch {
	case errors.As(err, &f):
	case errors.Is(err, context.DeadlineExceeded):
		f = &Failure{Reason: ReasonTimeout, Message: err.Error()}
	default:
		f = &Failure{Reason: ReasonInternal, Message: err.Error()}
	}
	if f.Source != "" && f.Reason != "" && len(f.Message) <= maxMessage {
		return f
	}
	bounded := *f
	if bounded.Source == "" {
		bounded.Source = source
	}
	if bounded.Reason == "" {
		bounded.Reason = ReasonInternal
	}
	bounded.Message = text.Truncate(bounded.Message, maxMessage)
	return &bounded
}

func shuttingDown(q Query, now time.Time) *EvaluationError {
	return &EvaluationError{Time: now, Failure: &Failure{Source: q.Source, Reason: ReasonShuttingDown, Message: "this server shuts down: ask again, which leads to another"}}
}

// panicked is the error of a source that panicked.
type panicked struct{ value any }

func (p *panicked) Error() string {
	return fmt.Sprintf("the source panicked: %v; see this server's log", p.value)
}
