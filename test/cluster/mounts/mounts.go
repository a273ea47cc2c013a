// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mounts finds and removes the mounts below the state directory: volumes, root filesystems of
// containers, and network namespaces.
package mounts

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Below lists the mount points below a directory, the youngest first.
func Below(directory string) ([]string, error) {
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("listing mounts: %w", err)
	}
	return below(all, directory), nil
}

func below(all []*mountinfo.Info, directory string) []string {
	var points []string
	for _, m := range all {
		// The kernel marks a mount point whose directory was removed.
		point := strings.TrimSuffix(m.Mountpoint, "//deleted")
		if strings.HasPrefix(point, strings.TrimSuffix(directory, "/")+"/") {
			points = append(points, point)
		}
	}
	slices.Reverse(points)
	return points
}

// Remove unmounts everything below a directory, and fails unless nothing is left: what is mounted there
// would otherwise be deleted with the directory.
func Remove(directory string) error {
	points, err := Below(directory)
	if err != nil {
		return err
	}
	var failed error
	for _, point := range points {
		// Detached, so that a mount that is still in use goes as soon as it is not.
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			failed = errors.Join(failed, fmt.Errorf("unmounting %s: %w", point, err))
		}
	}
	left, err := Below(directory)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return errors.Join(failed, fmt.Errorf("still mounted below %s: %s", directory, strings.Join(left, ", ")))
	}
	return nil
}
