// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"crypto/x509"
	"errors"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// maxReason bounds the reason of an UntrustedError, in bytes.
const maxReason = 1024

// UntrustedError means that a pod's certificate cannot be verified.
type UntrustedError struct {
	// Chain is what the pod showed, leaf first.
	Chain []*x509.Certificate
	// Reason does not change from one moment to the next.
	Reason string
}

// Error implements error.
func (e *UntrustedError) Error() string { return "its certificate cannot be verified: " + e.Reason }

func unverifiedReason(err error) string {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		// The error holds the current time.
		return "it, or its authority, has expired or is not valid yet"
	}
	// It may hold names of a certificate that anybody made.
	return text.Printable(err.Error(), maxReason)
}
