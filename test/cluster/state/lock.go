// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const lockFile = "lock"

// Lock takes the directory for one run of the program, and waits while another has it. The kernel gives
// the lock back when a run is killed. waiting is called once if it has to wait.
func (d Dir) Lock(ctx context.Context, waiting func()) (unlock func(), err error) {
	return LockFile(ctx, d.Path(lockFile), waiting)
}

// LockFile takes an exclusive lock on a file, which it makes.
func LockFile(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	for waited := false; ; {
		// Each time: the holder before us may have removed the directory.
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && same(file, path) {
			return func() { _ = file.Close() }, nil
		}
		_ = file.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if err != nil && !waited && waiting != nil {
			waited = true
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the lock %s, which another run holds: %w", path, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// same: the holder before us may have deleted the file ("down" does), and then our lock is on a file that
// nobody else will ever open.
func same(file *os.File, path string) bool {
	ours, err := file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && !errors.Is(err, fs.ErrNotExist) && os.SameFile(ours, now)
}
