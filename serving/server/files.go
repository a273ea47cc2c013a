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

func readFiles(paths ...string) ([][]byte, error) {
	contents := make([][]byte, len(paths))
	for i, path := range paths {
		var err error
		if contents[i], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	return contents, nil
}

// followFiles calls apply for each change of the files' contents since before, until the context ends. An error is
// logged, and what was applied last stays.
func followFiles(ctx context.Context, c clock.Clock, what string, before [][]byte, apply func([][]byte) error, paths ...string) {
	logger := klog.FromContext(ctx).WithValues("files", paths)
	unread := ""
	wake.Every(ctx, c, filesPeriod, func() {
		contents, err := readFiles(paths...)
		if err != nil {
			if err.Error() != unread {
				logger.Error(err, "Cannot read "+what+"; what was read last stays")
			}
			unread = err.Error()
			return
		}
		unread = ""
		if slices.EqualFunc(contents, before, bytes.Equal) {
			return
		}
		before = contents
		if err := apply(contents); err != nil {
			logger.Error(err, "Cannot use "+what+"; the previous content stays")
			return
		}
		logger.Info("A change of " + what + " is in force")
	})
}
