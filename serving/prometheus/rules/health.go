// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Reasons of a rule's health, and of a declared metric that is not in force.
const (
	// ReasonInvalidSeriesQuery means: it is no selector of series.
	ReasonInvalidSeriesQuery = "InvalidSeriesQuery"
	// ReasonInvalidSeriesFilter means: a filter is not one regular expression.
	ReasonInvalidSeriesFilter = "InvalidSeriesFilter"
	// ReasonInvalidName means: name makes no name, or one that the API cannot have.
	ReasonInvalidName = "InvalidName"
	// ReasonInvalidResources means: resources says of no label what it names.
	ReasonInvalidResources = "InvalidResources"
	// ReasonUnknownResource means: the cluster has no such resource; it is looked for
	// again and again.
	ReasonUnknownResource = "UnknownResource"
	// ReasonInvalidMetricsQuery means: the template does not make PromQL.
	ReasonInvalidMetricsQuery = "InvalidMetricsQuery"
	// ReasonUncheckedMetricsQuery means: the template makes a query that only the source
	// may know.
	ReasonUncheckedMetricsQuery = "UncheckedMetricsQuery"
	// ReasonNeedsLabels means: the template makes a query only with certain selectors.
	ReasonNeedsLabels = "NeedsLabels"
	// ReasonIgnoresSelectors means: the query of external metrics is the same for all.
	ReasonIgnoresSelectors = "IgnoresSelectors"
	// ReasonInvalidInterval means: it is no duration, or not within bounds.
	ReasonInvalidInterval = "InvalidInterval"
	// ReasonInvalidDuplicates means: there is no such policy.
	ReasonInvalidDuplicates = "InvalidDuplicates"
	// ReasonUnknownSource means: spec.sources names no such source.
	ReasonUnknownSource = "UnknownSource"
	// ReasonSeriesUnavailable means: the source does not say which series there are.
	ReasonSeriesUnavailable = "SeriesUnavailable"
	// ReasonTooManySeries means: there are more than are looked at.
	ReasonTooManySeries = "TooManySeries"
	// ReasonNoSeries means: nothing matches seriesQuery and the filters now.
	ReasonNoSeries = "NoSeries"
	// ReasonNoObjects means: series match, and no label of theirs names an object.
	ReasonNoObjects = "NoObjects"
	// ReasonCollision means: something else makes the same metric, and counts.
	ReasonCollision = "Collision"
	// ReasonInvalidQuery means: a declared metric's query is not PromQL, or cannot be
	// confined.
	ReasonInvalidQuery = "InvalidQuery"
	// ReasonInvalidWindow means: it is no duration.
	ReasonInvalidWindow = "InvalidWindow"
)

// problem is what is wrong with a rule.
type problem struct {
	state           v1alpha1.RuleState
	reason, message string
}

// invalidf is a problem that only a change of the spec mends.
func invalidf(reason, format string, args ...any) *problem {
	return &problem{v1alpha1.RuleInvalid, reason, fmt.Sprintf(format, args...)}
}

// failingf is a problem for which the rule makes no metric now, or one that works
// despite it.
func failingf(failing bool, reason, format string, args ...any) *problem {
	if failing {
		return &problem{v1alpha1.RuleFailing, reason, fmt.Sprintf(format, args...)}
	}
	return warnf(reason, format, args...)
}

func warnf(reason, format string, args ...any) *problem {
	return &problem{v1alpha1.RuleWarning, reason, fmt.Sprintf(format, args...)}
}

func (p *problem) health(path string) v1alpha1.RuleHealth {
	return v1alpha1.RuleHealth{Path: path, State: p.state, Reason: p.reason, Message: p.message}
}

// Health is how the rules do.
type Health struct {
	// Rules holds what is wrong, in the order of the spec; nothing for a rule that is
	// as it should be.
	Rules []v1alpha1.RuleHealth
	// Count is the number of rules, and Failing that of those that make no metric
	// because of themselves or their source. A rule that only waits for series, or whose
	// metrics another rule makes too, does not fail.
	Count, Failing int
	// CustomMetrics and ExternalMetrics count the metrics that exist now.
	CustomMetrics, ExternalMetrics int
}
