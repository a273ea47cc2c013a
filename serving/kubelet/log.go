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

// changeLog returns a function that logs what a result changed, or nil: a failure with
// another reason than before, a recovery, or samples skipped for a new reason. failed
// and skips are those of the last scrape; first means that there was none. The caller
// holds s.mu, and calls the function without it.
func (s *Source) changeLog(t *target, o *scrapeResult, failed v1alpha1.ScrapeReason, skips uint32, first bool) func(context.Context) {
	changed := t.failed != failed
	skipsMore := t.failed == "" && t.skips&^skips != 0
	if !changed && !skipsMore {
		return nil
	}
	if !s.logLimiter.AllowN(s.clock.Now(), 1) {
		s.unlogged++
		return nil
	}
	name, reason, unlogged := t.name, t.failed, s.unlogged
	s.unlogged = 0
	return func(ctx context.Context) {
		logger := klog.FromContext(ctx).WithValues("node", name, "url", o.url)
		if unlogged > 0 {
			logger = logger.WithValues("unloggedChanges", unlogged)
		}
		switch {
		case reason != "":
			// Info, since errors have a stack trace and this is a condition of the node.
			logger.Info("Scrape failed", "reason", reason, "err", o.failure)
		case changed && !first:
			logger.Info("Scrape succeeded again")
		}
		if skipsMore {
			logger.Info("Skipped samples", "reasons", o.stats.String(), "firstLine", o.stats.example)
		}
	}
}
