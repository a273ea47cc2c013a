// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// logRate and logBurst limit the lines about single nodes, per second: when a
	// zone fails, the report and the metrics tell more than thousands of lines.
	logRate  = rate.Limit(1)
	logBurst = 25
)

// logLine is a change in how a node's scrapes go.
type logLine struct {
	node, url string
	failed    v1alpha1.ScrapeReason
	failure   *failure
	recovered bool
	skipped   string
	example   string
	// unlogged counts the lines before this one that the limit held back.
	unlogged int
}

// lineFor returns what is to be logged of an outcome, or nil: a failure when its
// reason changes, a recovery, and samples that are skipped for a reason for
// which the last scrape skipped none. The caller holds s.mu.
func (s *Source) lineFor(t *target, o *outcome, failed v1alpha1.ScrapeReason, skips uint32, first bool) *logLine {
	changed := t.failed != failed
	skipsMore := t.failed == "" && t.skips&^skips != 0
	if !changed && !skipsMore {
		return nil
	}
	if !s.lines.AllowN(s.clock.Now(), 1) {
		s.unlogged++
		return nil
	}
	l := &logLine{node: t.name, url: o.url, failed: t.failed, failure: o.failure, unlogged: s.unlogged}
	l.recovered = changed && t.failed == "" && !first
	if skipsMore {
		l.skipped, l.example = o.tally.String(), o.tally.example
	}
	s.unlogged = 0
	return l
}

// write logs the line; nil has nothing to say.
func (l *logLine) write(ctx context.Context) {
	if l == nil {
		return
	}
	logger := klog.FromContext(ctx).WithValues("node", l.node, "url", l.url)
	if l.unlogged > 0 {
		logger = logger.WithValues("unloggedChanges", l.unlogged)
	}
	if l.failed != "" {
		// A condition of the node, not an error of this process: no stack trace.
		logger.Info("Scrape failed", "reason", l.failed, "err", l.failure)
	}
	if l.recovered {
		logger.Info("Scrape succeeded again")
	}
	if l.skipped != "" {
		logger.Info("Skipped samples", "reasons", l.skipped, "firstLine", l.example)
	}
}
