// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/warning"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// WindowSeconds is a window as the API has it. It is rounded up, since zero is for the
// value of an instant (Custom Metrics API proposal).
func WindowSeconds(window time.Duration) *int64 {
	return new(int64((window + time.Second - 1) / time.Second))
}

// maxWarnings is how many of a source's warnings are handed on.
const maxWarnings = 3

// Warn tells, in headers, what a list has no place for: stand-ins, things without a
// value, and what the source itself warns of, such as a part of it that did not
// answer. of says what has no value; where it returns nothing, that is not told.
func Warn(ctx context.Context, values *query.Values, of func(*query.Omission) string) {
	if values.SourceError != nil {
		warning.AddWarning(ctx, "", fmt.Sprintf("the values are stand-ins: %v", values.SourceError))
	}
	for i := range values.Omitted {
		o := &values.Omitted[i]
		if what := of(o); what != "" {
			// The first stands for all.
			warning.AddWarning(ctx, "", fmt.Sprintf("%s has no value: %v", what, o))
			break
		}
	}
	addWarnings(ctx, values.Warnings)
}

// PassedItems returns the API objects, of type T, of the values that another implementation answered, in its order, and
// hands its warnings on.
func PassedItems[T any](ctx context.Context, result *query.Result) []T {
	items := make([]T, 0, len(result.Samples))
	for i := range result.Samples {
		items = append(items, *any(result.Samples[i].Passed.Object).(*T))
	}
	addWarnings(ctx, result.Warnings)
	return items
}

// addWarnings hands on the first warnings of a source.
func addWarnings(ctx context.Context, warnings []string) {
	for _, text := range warnings[:min(len(warnings), maxWarnings)] {
		warning.AddWarning(ctx, "", text)
	}
}
