// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prometheus runs a real Prometheus for tests: Debian's, on loopback; and other servers with
// its API, from their Go modules. What they scrape is a meter.Meter, whose values a test sets.
//
//	exposed := meter.New()
//	target := httptest.NewServer(exposed)
//	server := prometheus.Start(t, prometheus.Scrape(target.URL))
//	server.WaitFor(t, `http_requests_total`)
package prometheus
