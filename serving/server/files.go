// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"os"
	"slices"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
)

// filesPeriod is the interval in which files are read. dynamiccertificates has a queue for each
// pair of files, whose metrics wake an idle process twice a second.
const filesPeriod = 10 * time.Second

// readFiles returns the contents of all files. A kubelet replaces all files of a volume at once, so if the first one has
// changed meanwhile, all are read again.
func readFiles(paths ...string) ([][]byte, error) {
	read := func(paths []string) ([][]byte, error) {
		contents := make([][]byte, len(paths))
		for i, path := range paths {
			var err error
			if contents[i], err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
		return contents, nil
	}
	contents, err := read(paths)
	if err != nil || len(paths) == 1 {
		return contents, err
	}
	if again, err := read(paths[:1]); err != nil || bytes.Equal(again[0], contents[0]) {
		return contents, err
	}
	return read(paths)
}

// followFiles calls apply for each change of the files' contents, in the order of paths, which applied has at the
// beginning, until the context ends. An error is logged once, and what was applied last stays.
func followFiles(ctx context.Context, c clock.Clock, what string, applied [][]byte, apply func([][]byte) error, paths ...string) {
	logger := klog.FromContext(ctx).WithValues("files", paths)
	equal := func(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }
	tried, failure := applied, ""
	wake.Every(ctx, c, filesPeriod, func() {
		contents, err := readFiles(paths...)
		changed := err == nil && !equal(contents, tried)
		if err == nil && (changed || failure != "") {
			tried = contents
			if !equal(contents, applied) {
				err = apply(contents)
			}
			if err == nil {
				applied = contents
			}
		}
		switch {
		case err != nil && (changed || err.Error() != failure):
			logger.Error(err, "Cannot use "+what+"; the previous content stays")
		case err == nil && (changed || failure != ""):
			logger.Info("The files of " + what + " are in force")
		}
		failure = ""
		if err != nil {
			failure = err.Error()
		}
	})
}
