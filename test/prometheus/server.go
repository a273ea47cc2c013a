// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import "testing"

// Server is a Prometheus that runs on loopback until its test has ended.
type Server struct {
	// URL is that of its HTTP API, without a path.
	URL string

	folder, address, config string
	process                 *Process
}

// Start runs Prometheus with a configuration, Scrape's or any other, and further
// arguments, until the test has ended.
func Start(t testing.TB, config string, args ...string) *Server {
	t.Helper()
	address, err := FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{URL: "http://" + address, folder: t.TempDir(), address: address, config: config}
	t.Cleanup(func() {
		if s.process != nil {
			s.Stop(t)
		}
	})
	s.Run(t, args...)
	return s
}

// Run starts a stopped server again, with the data that it has, and waits for it.
func (s *Server) Run(t testing.TB, args ...string) {
	t.Helper()
	process, err := Launch(t.Context(), s.folder, s.address, s.config, args...)
	if err != nil {
		t.Fatal(err)
	}
	s.process = process
}

// Stop ends the server in order, as a source that goes down; Run starts it again.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	err := s.process.Stop()
	s.process = nil
	if err != nil {
		t.Error(err)
	}
}

// Reload puts another configuration in force.
func (s *Server) Reload(t testing.TB, config string) {
	t.Helper()
	s.config = config
	if err := s.process.reload(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

// WaitFor waits until an expression has a result.
func (s *Server) WaitFor(t testing.TB, expression string) {
	t.Helper()
	if err := s.process.WaitFor(t.Context(), expression); err != nil {
		t.Fatal(err)
	}
}
