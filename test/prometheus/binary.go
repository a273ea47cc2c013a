// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Binary returns the path of Debian's Prometheus. The first call downloads the package
// (19 MB) and unpacks it into the user's cache, next to the cluster's binaries: to
// install it would start a service, and compiling it takes minutes.
func Binary(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory: %w; set XDG_CACHE_HOME", err)
	}
	parent := filepath.Join(cache, "metrics-backend-operator")
	folder := filepath.Join(parent, "prometheus-debian")
	binary := filepath.Join(folder, "usr", "bin", "prometheus")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("make the folder of the binaries: %w", err)
	}
	partial, err := os.MkdirTemp(parent, ".prometheus-")
	if err != nil {
		return "", fmt.Errorf("make a folder for Debian's package: %w", err)
	}
	defer func() { _ = os.RemoveAll(partial) }()
	if err := unpack(ctx, partial); err != nil {
		return "", fmt.Errorf("fetch Debian's package prometheus: %w; "+
			"without apt-get, put a Prometheus of 2.42 or later at %s", err, binary)
	}
	// Renamed when it is whole. Another run may have been quicker, with the same.
	if err := os.Rename(partial, folder); err != nil {
		if _, missing := os.Stat(binary); missing != nil {
			return "", fmt.Errorf("put Prometheus into the cache: %w", err)
		}
	}
	return binary, nil
}

// unpack downloads the package and leaves its files in the folder.
func unpack(ctx context.Context, folder string) error {
	download := func() error { return command(ctx, folder, "apt-get", "-q", "download", "prometheus") }
	if err := download(); err != nil {
		// A fresh machine has no list of packages.
		if updated := command(ctx, folder, "apt-get", "-q", "update"); updated != nil {
			return errors.Join(err, updated)
		}
		if err := download(); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(folder, "prometheus_*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("apt-get left %d packages: %q", len(packages), packages)
	}
	if err := command(ctx, folder, "dpkg-deb", "--extract", packages[0], folder); err != nil {
		return err
	}
	// MkdirTemp makes it private.
	return errors.Join(os.Remove(packages[0]), os.Chmod(folder, 0o755))
}

func command(ctx context.Context, folder, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		text := strings.TrimSpace(string(out))
		return fmt.Errorf("%s %s: %w:\n%s", name, strings.Join(args, " "), err, text[max(0, len(text)-1000):])
	}
	return nil
}
