// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watchconformance checks whether a metrics API can be watched as
// KEP-1013 has it, against whatever serves the API:
//
//	go test ./test/watchconformance -count=1 -v -run TestConformance -kubeconfig=$HOME/.kube/config
//
// Without -kubeconfig it takes KUBECONFIG, and with neither it checks the server
// of this repository on loopback. Each check is one line of the Watch table in
// docs/design.md, on one resource of one version that discovery names. It says
// the level of that line (see Level) and, if it fails, what was observed.
//
// The package judges from outside, with requests that only read. What cannot be
// seen from there (memory, metrics, a shutdown) is tested where it is built.
//
// It is an ordinary package, so that a test of another implementation can call
// Run with a rest.Config, too. Another API is another value of type API.
package watchconformance
