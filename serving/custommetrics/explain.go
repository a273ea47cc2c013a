// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"context"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/explain"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

var _ valueapi.Explainer = &targetRequest{}

// Explain says how the values come about that List returns. Of an answer it tells no
// more than concerns the objects that were asked for.
func (r *targetRequest) Explain(ctx context.Context, options *metainternalversion.ListOptions) (*v1alpha1.MetricExplanation, error) {
	resolved, err := r.resolve(options.LabelSelector, r.names(ctx, options.LabelSelector))
	if err != nil {
		return nil, err
	}
	// Where no object is selected, none may be told of; nil would be all.
	names := append([]string{}, resolved.names...)
	return explain.Explain(ctx, r.querier, explain.Request{MetricQuery: resolved.metricQuery, Objects: names}), nil
}
