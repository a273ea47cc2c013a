// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"errors"
	"testing"
)

// Equal failures have equal messages.
func TestStableMessage(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"error trying to reach service: dial tcp 10.0.0.7:10250: i/o timeout":  "error trying to reach service: dial tcp: i/o timeout",
		"dial tcp [fd00::7]:10250: connect: connection refused":                "dial tcp: connect: connection refused",
		"the server is currently unable to handle the request":                 "the server is currently unable to handle the request",
		"read tcp 10.0.0.1:41234->10.0.0.7:10250: read: connection reset by x": "read tcp: read: connection reset by x",
	} {
		if got := StableMessage(errors.New(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
