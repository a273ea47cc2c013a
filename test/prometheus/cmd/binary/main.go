// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command binary prints the path of the Prometheus that tests use, and fetches it first
// where it is not there yet.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/metricsbackend/metrics-backend-operator/test/prometheus"
)

func main() {
	path, err := prometheus.Binary(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
