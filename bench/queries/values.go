// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	custom "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	external "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
)

// comparedAutoscalers is the number of autoscalers of each kind whose values are compared.
const comparedAutoscalers = 20

// reference holds the values of the first contestant, by path.
type reference map[string]map[string]string

// compare requests the paths of some autoscalers, and checks that the values are those of
// the contestants before. Values never change.
func (r reference) compare(ctx context.Context, f *flags, server *cluster.Server) error {
	for _, k := range kinds {
		for _, autoscaler := range compared(f) {
			path := k.path(f, autoscaler)
			body, err := server.Get(ctx, path)
			if err != nil {
				return err
			}
			values, err := k.decode(body)
			if err != nil {
				return fmt.Errorf("decode %s: %w", path, err)
			}
			if len(values) == 0 {
				return fmt.Errorf("%s has no value", path)
			}
			if first, ok := r[path]; !ok {
				r[path] = values
			} else if diff := difference(first, values); diff != "" {
				return fmt.Errorf("%s: %s", path, diff)
			}
		}
	}
	return nil
}

// compared returns autoscalers with metrics at equal distances, and each selection in turn.
func compared(f *flags) []int {
	var all []int
	for i := range comparedAutoscalers {
		all = append(all, i*f.metrics/comparedAutoscalers+i%f.selected*f.metrics)
	}
	return all
}

// difference describes the first difference between values, or is empty.
func difference(want, got map[string]string) string {
	names := map[string]bool{}
	for name := range want {
		names[name] = true
	}
	for name := range got {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if want[name] != got[name] {
			return fmt.Sprintf("the value of %s is %q, of the first contestant %q", name, got[name], want[name])
		}
	}
	return ""
}

// decodeCustom returns values by object.
func decodeCustom(body []byte) (map[string]string, error) {
	var list custom.MetricValueList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, item := range list.Items {
		object := item.DescribedObject
		values[fmt.Sprintf("%s %s/%s, %s", object.Kind, object.Namespace, object.Name, item.Metric.Name)] = canonical(item.Value)
	}
	return values, nil
}

// decodeExternal returns values by labels.
func decodeExternal(body []byte) (map[string]string, error) {
	var list external.ExternalMetricValueList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, item := range list.Items {
		labels, err := json.Marshal(item.MetricLabels)
		if err != nil {
			return nil, err
		}
		values[item.MetricName+string(labels)] = canonical(item.Value)
	}
	return values, nil
}

// canonical returns the same text for the same value.
func canonical(q resource.Quantity) string { return fmt.Sprintf("%dm", q.MilliValue()) }
