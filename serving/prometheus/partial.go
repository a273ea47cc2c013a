// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"slices"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// rejectPartial returns the Failure for a result that lacks data, if the spec does not accept such
// results, and nil otherwise. A sum of them would be too low, and autoscalers would scale down.
func (s *settings) rejectPartial(e envelope) error {
	if s.spec.PartialResponse == v1alpha1.PartialResponseAccept {
		return nil
	}
	missing := slices.DeleteFunc(slices.Sorted(slices.Values(e.warnings)), aboutQuery)
	what := "it says isPartial"
	switch {
	case len(missing) > 1:
		what = fmt.Sprintf("%s (and %d more warnings)", missing[0], len(missing)-1)
	case len(missing) == 1:
		what = missing[0]
	case !e.partial:
		return nil
	}
	return failf(query.ReasonPartialResponse, "a part of the server did not answer, so data is missing (partialResponse: Accept would use the rest): %s", what)
}

// aboutQuery reports whether a warning is about the query, as Prometheus marks them since 2.48. All
// others of Prometheus, Thanos and Cortex are of a storage that failed.
func aboutQuery(warning string) bool {
	return strings.HasPrefix(warning, "PromQL ") || strings.HasSuffix(warning, " annotations omitted")
}
