// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command operator reconciles MetricsBackends.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json

	"github.com/metricsbackend/metrics-backend-operator/internal/memorylimit"
)

func main() {
	memorylimit.Set(os.Getenv, os.DirFS(memorylimit.Cgroup))
	os.Exit(cli.Run(newCommand()))
}
