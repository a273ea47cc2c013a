// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serving tests the serving component as a process of its own, behind
// a real kube-apiserver with its aggregator, against fake kubelets:
//
//	make test-integration
package serving
