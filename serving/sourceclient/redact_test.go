// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package sourceclient

import (
	"errors"
	"strings"
	"testing"
)

// A credential that lies across the end of what is read of an error is not told in part,
// and what is too short to be one is left alone.
func TestRedactionAtTheEnds(t *testing.T) {
	const secret = "0123456789-secret"
	for before := ExcerptSize - 2*len(secret); before <= ExcerptSize+2*len(secret); before++ {
		c := &credentials{token: secret}
		c.initRedactor()
		// White space is left out of messages, so that the end of the excerpt is told.
		got := c.excerpt(strings.NewReader(strings.Repeat(" ", before) + secret + strings.Repeat("x", 100)))
		if strings.Contains(got, "012") {
			t.Fatalf("after %d bytes: %q", before, strings.TrimSpace(got))
		}
	}
	c := &credentials{headers: []header{{name: "X-Scope-Orgid", value: "1"}}}
	c.initRedactor()
	f := FailureOf("main", &Connection{credentials: c}, errors.New("HTTP 500: 10 of 11"))
	if f.Message != "HTTP 500: 10 of 11" {
		t.Errorf("message %q", f.Message)
	}
	c = &credentials{token: "abcdef", headers: []header{{value: "abcdefgh"}}}
	c.initRedactor()
	if got := c.redact("abcdefgh abcdef"); got != "<redacted> <redacted>" {
		t.Errorf("redacted: %q", got)
	}
}
