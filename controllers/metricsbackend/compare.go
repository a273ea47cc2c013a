// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/comparison"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	// compareBeforeTakeover and compareRefused are how old a comparison may be: before a takeover,
	// and for the status while the APIService stays someone else's.
	compareBeforeTakeover = time.Minute
	compareRefused        = 10 * time.Minute
	// compareTimeout bounds one, which the reconciliation waits for.
	compareTimeout = 30 * time.Second
	// maxDifferences bounds those of one version in the status.
	maxDifferences = 10
	// autoscalersPage is how many HorizontalPodAutoscalers are read at once.
	autoscalersPage = 500
)

// compared is the last comparison of an APIService.
type compared struct {
	comparison.Result
	at         time.Time
	generation int64
	why        string
}

// compare compares the implementation behind someone else's APIService with our pods, unless that was done before maxAge.
func (r *Reconciler) compare(ctx context.Context, s *reconcileState, v *lifecycle.Version, maxAge time.Duration) {
	last := s.history.comparisons[v.Name()]
	if len(last.Lost) > 0 {
		maxAge = compareRefused // a new generation is compared at once
	}
	if last.at.IsZero() || last.generation != s.backend.Generation || s.now.Sub(last.at) >= maxAge {
		ctx, cancel := context.WithTimeout(ctx, compareTimeout)
		defer cancel()
		result, err := r.differences(ctx, s, v)
		if last = (compared{Result: result, at: s.now, generation: s.backend.Generation}); err != nil {
			klog.FromContext(ctx).Info("Cannot compare an APIService of someone else with our pods", "apiService", v.Name(), "err", err)
			last.why = text.Line(stableErrorMessage(err), maxNote)
		}
		for _, lines := range [][]string{last.Lost, last.Changed} {
			for i := range lines {
				lines[i] = text.Line(lines[i], maxNote)
			}
		}
		s.history.comparisons[v.Name()] = last
	}
	v.Differences, v.Uncompared = last.Result, last.why
}

func (r *Reconciler) differences(ctx context.Context, s *reconcileState, v *lifecycle.Version) (comparison.Result, error) {
	ready := s.rollout.pods.ready()
	if len(ready) == 0 {
		return comparison.Result{}, errors.New("no pod of ours is ready")
	}
	pod := s.connection(ready[0].Pod)
	var err error
	if pod.Token, err = r.tokens.Token(ctx, s.proberAccount()); err != nil {
		return comparison.Result{}, err
	}
	ours := func(ctx context.Context, path string, query url.Values, into any) error {
		return r.Pods.Read(ctx, pod, path, query, into)
	}
	if v.GV.Group == manifests.ResourceMetricsGroup {
		return comparison.Objects(ctx, v.GV, r.Aggregator.Get, ours)
	}
	metrics, err := r.metricsOfAutoscalers(ctx, v, func(a *autoscalingv2.HorizontalPodAutoscaler) []autoscalingv2.MetricSpec { return a.Spec.Metrics })
	if err != nil {
		return comparison.Result{}, err
	}
	return comparison.Values(ctx, metrics, r.Aggregator.Get, ours)
}

// metricsOfAutoscalers returns those metrics of the cluster's autoscalers that are of a version.
func (r *Reconciler) metricsOfAutoscalers(ctx context.Context, v *lifecycle.Version, those func(*autoscalingv2.HorizontalPodAutoscaler) []autoscalingv2.MetricSpec) ([]comparison.Metric, error) {
	var all []autoscalingv2.HorizontalPodAutoscaler
	for next, more := "", true; more; more = next != "" {
		var page autoscalingv2.HorizontalPodAutoscalerList
		if err := r.APIReader.List(ctx, &page, client.Limit(autoscalersPage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list HorizontalPodAutoscalers: %w", err)
		}
		for i := range page.Items {
			page.Items[i].Spec.Metrics = those(&page.Items[i])
		}
		all = append(all, page.Items...)
		next = page.Continue
	}
	return comparison.MetricsOf(v.GV, all, r.Client.RESTMapper())
}
