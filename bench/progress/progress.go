// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress is how a load runs: it says how far it is, in a folder of its own,
// until it is done, interrupted or out of time.
package progress

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Say prints a line, with the time since the load began.
type Say func(format string, arguments ...any)

// Run calls load with a folder, which is kept when it fails: what went wrong may be in
// the logs there.
func Run(out io.Writer, timeout time.Duration, load func(ctx context.Context, folder string, say Say) error) error {
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

// Wait waits, or until the context ends.
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
