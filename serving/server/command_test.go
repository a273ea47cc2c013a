// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"strings"
	"testing"
)

// TestLogFlags parses many times: if two flag sets define one flag, the random order of the
// sets decides which of them gets the value.
func TestLogFlags(t *testing.T) {
	for range 20 {
		o := NewOptions()
		if err := newCommand(o).ParseFlags([]string{"-v=4", "--logging-format=json"}); err != nil {
			t.Fatalf("parse: %v", err)
		}
		if o.Logging.Verbosity != 4 || o.Logging.Format != "json" {
			t.Fatalf("verbosity %d and format %q, want 4 and json", o.Logging.Verbosity, o.Logging.Format)
		}
	}
}

func TestHelp(t *testing.T) {
	cmd := NewCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatalf("--help: %v", err)
	}
	for _, part := range []string{"Metrics backend flags:", "--backend-file", "Secure serving flags:", "--secure-port", "Auditing flags:", "Logs flags:"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is missing in the help", part)
		}
	}
}
