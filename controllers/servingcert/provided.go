// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingcert

import (
	"fmt"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Cause says in which way a certificate cannot be used.
type Cause int

const (
	// Damaged means: something is missing, or is not what its name says.
	Damaged Cause = iota
	// Expired means: it is not valid today.
	Expired
	// Mismatch means: key, name or authority do not belong to it.
	Mismatch
)

// UnusableError is why a certificate that someone else keeps cannot be served.
// Its message says what to do, holds no key, and does not change by itself.
type UnusableError struct {
	// Cause tells one way from another.
	Cause Cause

	message string
	err     error
}

// Error implements error.
func (e *UnusableError) Error() string { return e.message }

// Unwrap returns what was found, if anything but the message.
func (e *UnusableError) Unwrap() error { return e.err }

func unusable(cause Cause, err error, format string, args ...any) *UnusableError {
	return &UnusableError{Cause: cause, message: fmt.Sprintf(format, args...), err: err}
}

// CheckProvided returns why a certificate that someone else keeps cannot be
// served for name, or nil. data are the keys of a Secret.
func (i *Issuer) CheckProvided(data map[string][]byte, name string) *UnusableError {
	var missing []string
	for _, key := range []string{v1alpha1.SecretKeyCertificate, v1alpha1.SecretKeyPrivateKey, v1alpha1.SecretKeyCA} {
		if len(data[key]) == 0 {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return unusable(Damaged, nil, "it lacks %s: put it there", strings.Join(missing, ", "))
	}
	authorities := ParseBundle(data[v1alpha1.SecretKeyCA])
	if len(authorities) == 0 {
		return unusable(Damaged, nil, "ca.crt holds no certificate in PEM: put the authority there that signed tls.crt")
	}
	served := ParseBundle(data[v1alpha1.SecretKeyCertificate])
	if len(served) == 0 {
		return unusable(Damaged, nil, "tls.crt holds no certificate in PEM")
	}
	chain, err := Provided(data).Chain()
	if err != nil {
		return unusable(Mismatch, err, "tls.crt and tls.key cannot be used together: %v", err)
	}
	if err := i.checkTime(chain[0]); err != nil {
		return unusable(Expired, err, "tls.crt %v: renew it", err)
	}
	if err := chain[0].VerifyHostname(name); err != nil {
		return unusable(Mismatch, err, "tls.crt is not for %s, by which kube-apiserver verifies it: issue it with this DNS name", name)
	}
	if err := i.Verify(chain, authorities, name); err != nil {
		return unusable(Mismatch, err,
			"ca.crt does not verify tls.crt (%v): put the authority that signed it into ca.crt, and intermediates into tls.crt", err)
	}
	return nil
}

// Provided is the KeyPair in a Secret's data.
func Provided(data map[string][]byte) KeyPair {
	return KeyPair{Certificate: data[v1alpha1.SecretKeyCertificate], Key: data[v1alpha1.SecretKeyPrivateKey]}
}
