// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package comparison compares what the implementation behind someone else's APIService answers with what our pods
// answer, before a takeover: every node and pod, and each metric that an autoscaler reads.
package comparison

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// concurrency is how many metrics are read at the same time, and maxMetrics how many at all.
	concurrency = 8
	maxMetrics  = 500
	// tolerance is how much two values of a metric, read one after the other, may differ by themselves.
	tolerance = 0.1
)

// Get reads path from an implementation, as JSON. An error is what its clients get.
type Get func(ctx context.Context, path string, query url.Values, into any) error

// Result is what is different.
type Result struct {
	// Lost is what theirs answers and ours does not, and Changed what has another value, a line for each.
	Lost, Changed []string
}

// Objects compares the nodes and pods of a version of metrics.k8s.io by name: values differ by the time of a scrape.
func Objects(ctx context.Context, gv schema.GroupVersion, theirs, ours Get) (Result, error) {
	var found Result
	for _, kind := range []string{"nodes", "pods"} {
		var before, after metav1.PartialObjectMetadataList
		path := "/apis/" + gv.String() + "/" + kind
		if err := theirs(ctx, path, nil, &before); err != nil {
			return Result{}, nil //nolint:nilerr // it answers nothing that could be lost
		}
		if err := ours(ctx, path, nil, &after); err != nil {
			return Result{}, fmt.Errorf("list %s of our pods: %w", kind, err)
		}
		lost := names(before)
		for name := range names(after) {
			delete(lost, name)
		}
		if len(lost) > 0 {
			const shown = 3
			some := slices.Sorted(maps.Keys(lost))
			found.Lost = append(found.Lost, fmt.Sprintf("%d of %d %s, such as %s", len(lost), len(before.Items), kind, strings.Join(some[:min(shown, len(some))], ", ")))
		}
	}
	return found, nil
}

func names(list metav1.PartialObjectMetadataList) map[string]bool {
	all := map[string]bool{}
	for i := range list.Items {
		all[strings.TrimPrefix(list.Items[i].Namespace+"/"+list.Items[i].Name, "/")] = true
	}
	return all
}

// Values compares the values of metrics.
func Values(ctx context.Context, metrics []Metric, theirs, ours Get) (Result, error) {
	var mu sync.Mutex
	var found Result
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for _, m := range metrics[:min(len(metrics), maxMetrics)] {
		group.Go(func() error {
			before, err := total(ctx, m, theirs)
			if err != nil || math.IsNaN(before) {
				return nil //nolint:nilerr // there is nothing to lose
			}
			after, err := total(ctx, m, ours)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				found.Lost = append(found.Lost, fmt.Sprintf("%s: %v", m.Description, err))
			case math.IsNaN(after):
				found.Lost = append(found.Lost, m.Description+": no value")
			case math.Abs(before-after) > tolerance*max(math.Abs(before), math.Abs(after)):
				found.Changed = append(found.Changed, fmt.Sprintf("%s: %g, and %g from our pods", m.Description, before, after))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Result{}, fmt.Errorf("compare the metrics of autoscalers: %w", err)
	}
	if n := len(metrics) - maxMetrics; n > 0 {
		found.Changed = append(found.Changed, fmt.Sprintf("%d further metrics were not compared", n))
	}
	slices.Sort(found.Lost)
	slices.Sort(found.Changed)
	return found, nil
}

// total returns the sum of the values of a metric, or NaN if there is none.
func total(ctx context.Context, m Metric, get Get) (float64, error) {
	var list struct {
		Items []struct {
			Value resource.Quantity `json:"value"`
		} `json:"items"`
	}
	if err := get(ctx, m.path, m.query, &list); err != nil {
		return 0, err
	}
	if len(list.Items) == 0 {
		return math.NaN(), nil
	}
	sum := 0.0
	for i := range list.Items {
		sum += list.Items[i].Value.AsApproximateFloat64()
	}
	return sum, nil
}
