// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package comparison compares what the implementation behind someone else's APIService answers with what our pods
// answer, before a takeover: every node and pod, and each metric that an autoscaler reads.
package comparison

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// concurrency is how many metrics are read at the same time, and maxMetrics how many at all.
	concurrency = 8
	maxMetrics  = 500
	// metricTimeout bounds the two requests for one metric: a slow one is named, and does not use up the time of the others.
	metricTimeout = 5 * time.Second
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
			return Result{}, fmt.Errorf("list %s of the other implementation: %w", kind, err)
		}
		if err := ours(ctx, path, nil, &after); err != nil {
			return Result{}, fmt.Errorf("list %s of our pods: %w", kind, err)
		}
		if lost := sets.List(names(before).Difference(names(after))); len(lost) > 0 {
			const shown = 3
			found.Lost = append(found.Lost, fmt.Sprintf("%d of %d %s, such as %s", len(lost), len(before.Items), kind, strings.Join(lost[:min(shown, len(lost))], ", ")))
		}
	}
	return found, nil
}

func names(list metav1.PartialObjectMetadataList) sets.Set[string] {
	all := sets.New[string]()
	for i := range list.Items {
		all.Insert(strings.TrimPrefix(list.Items[i].Namespace+"/"+list.Items[i].Name, "/"))
	}
	return all
}

// notKEDAs is in KEDA's internal error for a metric that is of no ScaledObject.
const notKEDAs = "scaledObject name is not specified"

// Values compares the values of metrics.
func Values(ctx context.Context, metrics []Metric, theirs, ours Get) (Result, error) {
	var mu sync.Mutex
	var found Result
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for _, m := range metrics[:min(len(metrics), maxMetrics)] {
		group.Go(func() error {
			one, cancel := context.WithTimeout(ctx, metricTimeout)
			defer cancel()
			before, failure := valuesOf(one, m, theirs)
			if apierrors.IsNotFound(failure) || failure != nil && strings.Contains(failure.Error(), notKEDAs) || failure == nil && len(before) == 0 {
				return nil // there is nothing to lose
			}
			after, err := valuesOf(one, m, ours)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			missing := sets.KeySet(before).Difference(sets.KeySet(after)).Len()
			was, is := total(before), total(after)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case failure != nil && len(after) > 0:
			case failure != nil:
				found.Lost = append(found.Lost, fmt.Sprintf("%s: no value, and the other implementation fails: %v", m.Description, failure))
			case err != nil:
				found.Lost = append(found.Lost, fmt.Sprintf("%s: %v", m.Description, err))
			case len(after) == 0:
				found.Lost = append(found.Lost, m.Description+": no value")
			case missing > 0:
				found.Lost = append(found.Lost, fmt.Sprintf("%s: no value of %d of %d objects", m.Description, missing, len(before)))
			case math.Abs(was-is) > tolerance*max(math.Abs(was), math.Abs(is)):
				found.Changed = append(found.Changed, fmt.Sprintf("%s: %g, and %g from our pods", m.Description, was, is))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Result{}, fmt.Errorf("compare the metrics of autoscalers: %w", err)
	}
	if n := len(metrics) - maxMetrics; n > 0 {
		found.Lost = append(found.Lost, fmt.Sprintf("%d further metrics were not compared", n))
	}
	slices.Sort(found.Lost)
	slices.Sort(found.Changed)
	return found, nil
}

// valuesOf returns the values of a metric by the objects that they describe. External ones describe none.
func valuesOf(ctx context.Context, m Metric, get Get) (map[string]float64, error) {
	var list struct {
		Items []struct {
			DescribedObject corev1.ObjectReference `json:"describedObject"`
			Value           resource.Quantity      `json:"value"`
		} `json:"items"`
	}
	if err := get(ctx, m.path, m.query, &list); err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for i := range list.Items {
		values[list.Items[i].DescribedObject.Name] += list.Items[i].Value.AsApproximateFloat64()
	}
	return values, nil
}

func total(values map[string]float64) (sum float64) {
	for _, value := range values {
		sum += value
	}
	return sum
}
