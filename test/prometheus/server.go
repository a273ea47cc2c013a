// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"errors"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/test/freeport"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// Server is a Prometheus, or another server with its API, that runs on loopback until its test has ended.
type Server struct {
	// URL is that of its HTTP API, without a path.
	URL     string
	process *Process
}

// Start runs Prometheus with a configuration, Scrape's or any other, and further
// arguments, until the test has ended.
func Start(t testing.TB, config string, args ...string) *Server {
	t.Helper()
	process, err := Launch(t.Context(), t.TempDir(), freeport.Address(t), config, args...)
	return serverOf(t, process, err)
}

// serverOf returns the server of a process that was started, and ends it with the test.
func serverOf(t testing.TB, process *Process, err error) *Server {
	t.Helper()
	fatalOnError(t, err)
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &Server{URL: process.URL, process: process}
}

// Stop ends the server before the test has ended.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.process.Stop(); err != nil {
		t.Fatal(err)
	}
}

// WaitFor waits until an expression has a result.
func (s *Server) WaitFor(t testing.TB, expression string) {
	t.Helper()
	fatalOnError(t, s.process.WaitFor(t.Context(), expression))
}

// fatalOnError stops the test because of an error, if there is one.
func fatalOnError(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, errLate):
		outcome.Deadlinef(t, "%v", err)
	case err != nil:
		t.Fatal(err)
	}
}
