// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// Reason classifies a failure of a source. It is also a metric label's value.
type Reason string

// Reasons of failures.
const (
	// ReasonUnknownSource means: spec.sources has no source of this name.
	ReasonUnknownSource Reason = "UnknownSource"
	// ReasonCredentials means: the Secret with its credentials is missing or unusable.
	ReasonCredentials Reason = "Credentials"
	// ReasonConnectionFailed means: no connection, or it broke.
	ReasonConnectionFailed Reason = "ConnectionFailed"
	// ReasonTimeout means: no complete response in time.
	ReasonTimeout Reason = "Timeout"
	// ReasonCertificateUntrusted means: the server's certificate does not verify.
	ReasonCertificateUntrusted Reason = "CertificateUntrusted"
	// ReasonUnauthorized means: HTTP 401 or 403.
	ReasonUnauthorized Reason = "Unauthorized"
	// ReasonRejected means: the source reports that the expression is wrong or too
	// expensive; a retry will not help.
	ReasonRejected Reason = "Rejected"
	// ReasonBadStatus means: any other HTTP status than 200.
	ReasonBadStatus Reason = "BadStatus"
	// ReasonRateLimited means: the source limits its clients, with HTTP 429, or 503 and Retry-After.
	ReasonRateLimited Reason = "RateLimited"
	// ReasonTooLarge means: the result is larger than the documented limit.
	ReasonTooLarge Reason = "TooLarge"
	// ReasonMalformed means: the response does not conform to the source's API.
	ReasonMalformed Reason = "Malformed"
	// ReasonPartialResponse means: a part of the source's storage did not answer, and the result
	// lacks its data.
	ReasonPartialResponse Reason = "PartialResponse"
	// ReasonServerError means: another implementation answered this request with an error of its own,
	// HTTP 5xx. Other metrics may have values.
	ReasonServerError Reason = "ServerError"
	// ReasonServiceMissing means: the Service of another implementation does not exist, or has no address.
	ReasonServiceMissing Reason = "ServiceMissing"
	// ReasonLoop means: another implementation is a MetricsBackend, or leads to one.
	ReasonLoop Reason = "Loop"
	// ReasonOverloaded means: a limit of this server on evaluations or cached queries.
	ReasonOverloaded Reason = "Overloaded"
	// ReasonShuttingDown means: this server shuts down.
	ReasonShuttingDown Reason = "ShuttingDown"
	// ReasonInternal means: a bug of this server.
	ReasonInternal Reason = "Internal"
)

// queryFault reports whether the query is the cause: the source itself works.
func (r Reason) queryFault() bool { return r == ReasonRejected || r == ReasonTooLarge }

// SourceAnswered reports whether the source evaluated the query, or reported what is wrong with it:
// other queries may succeed.
func (r Reason) SourceAnswered() bool {
	return r.queryFault() || r == ReasonPartialResponse || r == ReasonServerError
}

// sourceFault reports whether any query of the source would fail like this.
func (r Reason) sourceFault() bool {
	return r == ReasonCredentials || r == ReasonConnectionFailed || r == ReasonCertificateUntrusted || r == ReasonUnauthorized ||
		r == ReasonServiceMissing || r == ReasonLoop
}

// ambiguous reports whether either the source or the query may be the cause.
func (r Reason) ambiguous() bool {
	return r == ReasonTimeout || r == ReasonBadStatus || r == ReasonRateLimited || r == ReasonMalformed
}

// Failure is why a source returned no result.
type Failure struct {
	// Source is its name in spec.sources.
	Source string
	Reason Reason
	// Message is that of the source, if any. It contains no credentials and at most a
	// few hundred characters.
	Message string
	// RetryAfter is how long the source wants not to get the query again, at most a minute.
	RetryAfter time.Duration
	// Unparsable says that the source reports that it cannot parse the expression.
	Unparsable bool
	// Status is the error that another implementation answered, which clients get unchanged; nil for others.
	Status *metav1.Status

	// circuitOpen marks a query that was not evaluated since others failed with Reason.
	circuitOpen bool
}

// Failf returns a Failure of a source that is not named yet.
func Failf(reason Reason, format string, args ...any) *Failure {
	return &Failure{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (f *Failure) Error() string {
	return fmt.Sprintf("source %q: %s: %s", f.Source, f.Reason, f.Message)
}

// EvaluationError is the error of a query without a result. It unwraps to a Failure.
type EvaluationError struct {
	*Failure
	// FailedIntervals counts the intervals in a row, including this one, in which the query
	// was requested or subscribed to and failed; 0 if the request ended before that was known.
	FailedIntervals int
	// Time of the failure.
	Time time.Time
	// LastResult is the newest result of the source; nil if there is none, or it is too old.
	LastResult *Result

	// cause is the error of the request's context.
	cause error
}

// Unwrap returns the Failure, and the context's error if the request ended.
func (e *EvaluationError) Unwrap() []error {
	if e.cause != nil {
		return []error{e.Failure, e.cause}
	}
	return []error{e.Failure}
}

// ReasonOf returns the reason and the message of an error of Values: those of a Failure, or why a
// series has no value; for any other error the given reason.
func ReasonOf(err error, other string) (reason, message string) {
	if f, ok := errors.AsType[*Failure](err); ok {
		return string(f.Reason), f.Message
	}
	if o, ok := errors.AsType[*Omission](err); ok {
		return string(o.Reason), err.Error()
	}
	return other, err.Error()
}

// maxMessage limits the message of a failure, in bytes.
const maxMessage = 500

// failureOf returns the Failure in an error, with its source set and its message bounded.
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
	bounded.Source, bounded.Reason = cmp.Or(f.Source, source), cmp.Or(f.Reason, ReasonInternal)
	bounded.Message = text.Truncate(f.Message, maxMessage)
	return &bounded
}

func errShuttingDown(q Query, now time.Time) *EvaluationError {
	return &EvaluationError{Time: now, Failure: &Failure{Source: q.Source, Reason: ReasonShuttingDown, Message: "this server shuts down: retry, which reaches another one"}}
}
