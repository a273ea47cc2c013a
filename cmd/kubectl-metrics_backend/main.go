// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-metrics_backend is the kubectl plugin `kubectl metrics-backend`.
package main

import (
	"os"

	"github.com/metricsbackend/metrics-backend-operator/plugin"
)

func main() { os.Exit(plugin.Main(os.Args[1:])) }
