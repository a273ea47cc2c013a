// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// poll is how often the end of a process that is not our child is looked for.
const poll = 20 * time.Millisecond

// Stop asks the processes to end and kills those that have not after grace. It returns when all are gone.
func Stop(ctx context.Context, grace time.Duration, ids ...Identity) error {
	var failed error
	for _, id := range ids {
		failed = errors.Join(failed, id.Signal(syscall.SIGTERM))
	}
	if failed != nil {
		return failed
	}
	waiting, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if Wait(waiting, ids...) == nil {
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return Kill(ctx, ids...)
}

// Kill ends the processes at once, and returns when all are gone.
func Kill(ctx context.Context, ids ...Identity) error {
	var failed error
	for _, id := range ids {
		failed = errors.Join(failed, id.Signal(syscall.SIGKILL))
	}
	if failed != nil {
		return failed
	}
	waiting, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return Wait(waiting, ids...)
}

// Wait returns when none of the processes runs any more.
func Wait(ctx context.Context, ids ...Identity) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		var alive []int
		for _, id := range ids {
			if id.Alive() {
				alive = append(alive, id.PID)
			}
		}
		if len(alive) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for processes %v to end: %w", alive, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}
