// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command serving is the aggregated API server of the metrics APIs.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"

	"github.com/metricsbackend/metrics-backend-operator/serving/server"
)

func main() {
	lowerGCPercent(os.Getenv)
	cmd, err := server.NewCommand()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	os.Exit(cli.Run(cmd))
}
