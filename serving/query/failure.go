// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import "fmt"

// Reason classifies a failure of a source. It is also a metric label's value.
type Reason string

// Why a source did not answer.
const (
	// ReasonUnknownSource means: spec.sources names no such source.
	ReasonUnknownSource Reason = "UnknownSource"
	// ReasonCredentials means: the Secret with its credentials is missing or unusable.
	ReasonCredentials Reason = "Credentials"
	// ReasonConnectionFailed means: no connection, or it broke.
	ReasonConnectionFailed Reason = "ConnectionFailed"
	// ReasonTimeout means: no complete answer in time.
	ReasonTimeout Reason = "Timeout"
	// ReasonCertificateUntrusted means: the server's certificate does not verify.
	ReasonCertificateUntrusted Reason = "CertificateUntrusted"
	// ReasonUnauthorized means: HTTP 401 or 403.
	ReasonUnauthorized Reason = "Unauthorized"
	// ReasonRejected means: the source says that the expression is wrong or too
	// costly; asking again will not help.
	ReasonRejected Reason = "Rejected"
	// ReasonBadStatus means: any other HTTP status than 200.
	ReasonBadStatus Reason = "BadStatus"
	// ReasonTooLarge means: the answer is larger than the stated limit.
	ReasonTooLarge Reason = "TooLarge"
	// ReasonMalformed means: the answer is not what the source's API says.
	ReasonMalformed Reason = "Malformed"
	// ReasonOverloaded means: this server was asked more than it evaluates or holds.
	ReasonOverloaded Reason = "Overloaded"
	// ReasonShuttingDown means: this server ends.
	ReasonShuttingDown Reason = "ShuttingDown"
	// ReasonInternal means: a fault of this server.
	ReasonInternal Reason = "Internal"
)

// answered says that a source which fails so does answer: it is the question that
// it cannot be asked.
func (r Reason) answered() bool { return r == ReasonRejected || r == ReasonTooLarge }

// certain says that a source which fails so fails whatever it is asked.
func (r Reason) certain() bool {
	switch r {
	case ReasonCredentials, ReasonConnectionFailed, ReasonCertificateUntrusted, ReasonUnauthorized:
		return true
	}
	return false
}

// uncertain says that a source which fails so may do it for one question alone.
func (r Reason) uncertain() bool {
	return r == ReasonTimeout || r == ReasonBadStatus || r == ReasonMalformed
}

// Failure is why a source did not answer.
type Failure struct {
	// Source is its name in spec.sources.
	Source string
	Reason Reason
	// Message is in the source's own words where it said any; it holds no
	// credentials and at most a few hundred characters.
	Message string

	// suspended says that the question was not asked, as others failed like this.
	suspended bool
}

// Error implements error.
func (f *Failure) Error() string {
	return fmt.Sprintf("source %q: %s: %s", f.Source, f.Reason, f.Message)
}
