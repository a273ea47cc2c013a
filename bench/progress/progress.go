// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress runs a load test as a program: in a temporary folder, with progress
// messages, until it is done, interrupted or timed out.
package progress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Settings are the flags of the command line.
type Settings interface {
	// Deadline is the timeout of the load.
	Deadline() time.Duration
}

// Main parses the command line and runs the load.
func Main[S Settings](name string, parse func([]string) (S, error), load func(context.Context, S, string, io.Writer, Say) error) {
	log.SetLogger(logr.Discard())
	settings, err := parse(os.Args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(os.Stdout, settings.Deadline(), func(ctx context.Context, folder string, say Say) error {
			return load(ctx, settings, folder, os.Stdout, say)
		})
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Say prints a line, with the time since the load began.
type Say func(format string, arguments ...any)

// run calls load with a folder, which is kept if it fails, since it has the logs.
func run(out io.Writer, timeout time.Duration, load func(ctx context.Context, folder string, say Say) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not done within --timeout %v", timeout))
	defer cancel()
	folder, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return fmt.Errorf("make a folder for the run: %w", err)
	}
	began := time.Now()
	err = load(ctx, folder, func(format string, arguments ...any) {
		elapsed := time.Since(began).Round(time.Second)
		_, _ = fmt.Fprintf(out, "%02d:%02d  %s\n", int(elapsed.Minutes()), int(elapsed.Seconds())%60, fmt.Sprintf(format, arguments...))
	})
	if err != nil {
		return fmt.Errorf("%w (logs in %s)", err, folder)
	}
	return os.RemoveAll(folder)
}

// Wait waits for a time, or until the context ends.
func Wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
