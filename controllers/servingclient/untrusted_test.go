// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"crypto/x509"
	"strings"
	"testing"
	"unicode"
)

// What a foreign certificate calls itself ends in conditions and on terminals.
func TestUntrustedReasonIsPrintable(t *testing.T) {
	reason := untrustedReason(x509.HostnameError{
		Certificate: &x509.Certificate{DNSNames: []string{"evil\x1b[31m\n\u202e.example"}}, Host: "ours.example",
	})
	if strings.ContainsFunc(reason, func(r rune) bool { return !unicode.IsPrint(r) }) || !strings.Contains(reason, "evil") {
		t.Errorf("%q", reason)
	}
}
