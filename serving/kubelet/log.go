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
	// logRate and logBurst limit the log entries about single nodes: when a zone
	// fails, the report and the metrics say more than thousands of entries.
	logRate  = rate.Limit(1)
	logBurst = 25
)

// logEntry is a change in the results of a node's scrapes.
type logEntry struct {
	node, url string
	failed    v1alpha1.ScrapeReason
	failure   *failure
	recovered bool
	skipped   string
	example   string
	// unlogged counts the entries before this one that the limit dropped.
	unlogged int
}

// newLogEntry returns what to log of an outcome, or nil: a failure with another
// reason than before, a recovery, or samples skipped for a new reason. failed and
// skips are those of the scrape before. The caller holds s.mu.
func (s *Source) newLogEntry(t *target, o *outcome, failed v1alpha1.ScrapeReason, skips uint32, first bool) *logEntry {
	changed := t.failed != failed
	skipsMore := t.failed == "" && t.skips&^skips != 0
	if !changed && !skipsMore {
		return nil
	}
	if !s.logLimiter.AllowN(s.clock.Now(), 1) {
		s.unlogged++
		return nil
	}
	l := &logEntry{node: t.name, url: o.url, failed: t.failed, failure: o.failure, unlogged: s.unlogged}
	l.recovered = changed && t.failed == "" && !first
	if skipsMore {
		l.skipped, l.example = o.stats.String(), o.stats.example
	}
	s.unlogged = 0
	return l
}

// write logs the entry. A nil entry is ignored.
func (l *logEntry) write(ctx context.Context) {
	if l == nil {
		return
	}
	logger := klog.FromContext(ctx).WithValues("node", l.node, "url", l.url)
	if l.unlogged > 0 {
		logger = logger.WithValues("unloggedChanges", l.unlogged)
	}
	if l.failed != "" {
		// Info, since errors have a stack trace and this is a condition of the node.
		logger.Info("Scrape failed", "reason", l.failed, "err", l.failure)
	}
	if l.recovered {
		logger.Info("Scrape succeeded again")
	}
	if l.skipped != "" {
		logger.Info("Skipped samples", "reasons", l.skipped, "firstLine", l.example)
	}
}
