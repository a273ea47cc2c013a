// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/client"
)

func TestIndex(t *testing.T) {
	type change = client.Change[metricsv1.PodMetrics]
	updated := func(namespace, name string, seconds int) change {
		return change{Type: client.Updated, Object: pod(namespace, name, "app=web", seconds)}
	}
	dropped := func(namespace, name string) change {
		return change{Type: client.Dropped, Object: pod(namespace, name, "app=web", 0)}
	}
	for name, c := range map[string]struct {
		changes    []change
		selector   string
		want       []string // of the namespace shop
		namespaces int
	}{
		"nothing":                     {nil, "", nil, 0},
		"by name":                     {[]change{updated("shop", "c", 1), updated("shop", "a", 2), updated("shop", "b", 3)}, "", []string{"a 2", "b 3", "c 1"}, 1},
		"newer":                       {[]change{updated("shop", "a", 1), updated("shop", "a", 2)}, "", []string{"a 2"}, 1},
		"dropped":                     {[]change{updated("shop", "a", 1), updated("shop", "b", 2), dropped("shop", "a")}, "", []string{"b 2"}, 1},
		"dropped and back":            {[]change{updated("shop", "a", 1), dropped("shop", "a"), updated("shop", "a", 3)}, "", []string{"a 3"}, 1},
		"namespaces keep apart":       {[]change{updated("shop", "a", 1), updated("other", "a", 2), dropped("other", "a")}, "", []string{"a 1"}, 1},
		"an empty namespace is gone":  {[]change{updated("shop", "a", 1), dropped("shop", "a")}, "", nil, 0},
		"a drop of what is not known": {[]change{dropped("shop", "a")}, "", nil, 0},
		"selector":                    {[]change{updated("shop", "a", 1)}, "app=db", nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			index := newIndex()
			for _, change := range c.changes {
				index.take(change)
			}
			selector, err := labels.Parse(c.selector)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, pod := range index.list("shop", selector) {
				got = append(got, fmt.Sprintf("%s %.0f", pod.Name, pod.Timestamp.Sub(epoch).Seconds()))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if len(index.namespaces) != c.namespaces {
				t.Errorf("%d namespaces held, want %d", len(index.namespaces), c.namespaces)
			}
		})
	}
}
