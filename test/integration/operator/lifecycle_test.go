// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"testing"
)

// An empty resourceMetrics ends with both versions available, through the real
// aggregator.
func TestBecomesReady(t *testing.T) {
	createBackend(t, newBackend("cluster"))
	backend := waitReady(t, "cluster")
	if got, want := backend.Status.RegisteredVersions, "v1, v1beta1"; got != want {
		t.Errorf("registeredVersions = %q, want %q", got, want)
	}
	if got, want := backend.Status.Serving.Summary, "2/2"; got != want {
		t.Errorf("serving.summary = %q, want %q", got, want)
	}
}
