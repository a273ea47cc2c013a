// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command meter is a workload that exposes the metrics it is told, at /metrics; PUT
// there sets others (see the package meter).
//
//	meter --listen=:8080 'queue_length{queue="a"} 17' 'http_requests_total 0 +25'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/prometheus/meter"
)

func main() {
	listen := flag.String("listen", ":8080", "address to listen on")
	flag.Parse()
	if err := run(*listen, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "meter:", err)
		os.Exit(1)
	}
}

func run(listen string, series []string) error {
	m := meter.New()
	if err := m.Set(strings.Join(series, "\n")); err != nil {
		return err
	}
	server := &http.Server{Addr: listen, Handler: m, ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
