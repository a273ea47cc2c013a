// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// However many metrics teams declare, and whatever they call them, those of rules come
// first.
func TestListsBeginWithRules(t *testing.T) {
	c := newCatalog(t, backend(
		[]v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: namespacePod}},
		[]v1alpha1.MetricRule{{SeriesQuery: "lag"}, {SeriesQuery: "backlog"}},
	))
	for _, s := range c.Selections() {
		c.SetSeries(s, []series.Series{seriesOf(s.Selector, "namespace", "pod")})
	}
	var custom []*v1alpha1.CustomMetric
	var external []*v1alpha1.ExternalMetric
	for _, namespace := range []string{"shop", "bank"} {
		for i := range 20 {
			custom = append(custom, customMetric(namespace, fmt.Sprintf("a%02d", i), "up"))
			external = append(external, externalMetric(namespace, fmt.Sprintf("a%02d", i), "up"))
		}
		external = append(external, externalMetric(namespace, "lag", "up"))
	}
	c.Declare(custom, external)
	names, total := c.ExternalMetrics(4)
	if diff := cmp.Diff([]string{"backlog", "lag", "a00", "a01"}, names); diff != "" || total != 22 {
		t.Errorf("of %d (-want +got):\n%s", total, diff)
	}
	if names, total := c.ExternalMetrics(1); len(names) != 1 || names[0] != "backlog" || total != 22 {
		t.Errorf("the first is %v of %d", names, total)
	}
	if all := externals(c); len(all) != 22 {
		t.Errorf("all are %v", all)
	}
	first, total := c.ObjectMetrics(3)
	var got []string
	for _, m := range first {
		got = append(got, m.Resource.String()+"/"+m.Name)
	}
	if diff := cmp.Diff([]string{"namespaces/requests", "pods/requests", "pods/a00"}, got); diff != "" || total != 22 {
		t.Errorf("of %d (-want +got):\n%s", total, diff)
	}
	if again, _ := c.ObjectMetrics(3); &again[0] != &first[0] {
		t.Error("what did not change is another slice")
	}
	if h := c.Health(); h.CustomMetrics != 22 || h.ExternalMetrics != 22 {
		t.Errorf("health %+v", h)
	}
	c.Declare(nil, nil)
	if names, total := c.ExternalMetrics(4); len(names) != 2 || total != 2 {
		t.Errorf("without what was declared: %v of %d", names, total)
	}
	if h := c.Health(); h.CustomMetrics != 2 || h.ExternalMetrics != 2 {
		t.Errorf("health %+v", h)
	}
}

func TestFirstN(t *testing.T) {
	names := map[string]bool{}
	for range 5000 {
		names[fmt.Sprint(rand.IntN(1e9))] = true
	}
	sorted := slices.Sorted(maps.Keys(names))
	for _, most := range []int{0, 1, 7, 2000, 2500, len(names), len(names) + 1, math.MaxInt} {
		got := firstN(maps.Keys(names), most, strings.Compare)
		if !slices.Equal(got, sorted[:min(most, len(sorted))]) {
			t.Errorf("the first %d are wrong: %d", most, len(got))
		}
	}
	if got := firstN(maps.Keys(names), -1, strings.Compare); len(got) != 0 {
		t.Errorf("%d are left of none", len(got))
	}
}

// Requests are answered while the metrics are listed, or anything changes: they wait for
// nothing but a change that is put in place.
func TestRequestsDoNotWaitForLists(t *testing.T) {
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: namespacePod}}, nil), seriesOf("requests", "namespace", "pod"))
	c.changing.Lock() // as the list and each change hold it
	answered := make(chan error, 1)
	go func() {
		_, _, err := c.ObjectQuery(pods("shop", "requests", "a"))
		c.Health()
		answered <- err
	}()
	listed := make(chan int, 1)
	go func() {
		_, total := c.ObjectMetrics(1)
		listed <- total
	}()
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("a request waits")
	}
	select {
	case <-listed:
		t.Error("the list was made beside a change")
	default:
	}
	c.changing.Unlock()
	if total := <-listed; total != 2 {
		t.Errorf("%d metrics", total)
	}
}

// What is answered of the namespaces that a selector selects is the same metric, however
// many these are just now.
func TestSelectedNamespaces(t *testing.T) {
	own := customMetric("shop", "cost", "vector(0)")
	own.Spec.Describes = v1alpha1.DescribedObjects{Resource: "namespaces", Name: "shop"}
	only := customMetric("shop", "orders", "vector(0)")
	only.Spec.Describes = own.Spec.Describes
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "cost", Resources: namespacePod}}, nil), seriesOf("cost", "namespace"))
	c.Declare([]*v1alpha1.CustomMetric{own, only}, nil)
	for _, d := range c.Declared() {
		if d.Reason != "" {
			t.Fatalf("declared: %+v", d)
		}
	}
	read := func(metric string, selected bool, names ...string) (string, error) {
		mq, _, err := c.ObjectQuery(query.ObjectRequest{Resource: schema.GroupResource{Resource: "namespaces"}, Metric: metric, Names: names, Selected: selected})
		return mq.Origin, err
	}
	for _, names := range [][]string{nil, {"shop"}, {"bank", "shop"}} {
		if origin, err := read("cost", true, names...); err != nil || origin != "spec.customMetrics.rules[0]" {
			t.Errorf("of %q it is made by %q, %v", names, origin, err)
		}
		if _, err := read("orders", true, names...); !apierrors.IsNotFound(err) {
			t.Errorf("of %q without a rule: %v", names, err)
		}
	}
	if origin, err := read("cost", false, "shop"); err != nil || origin != "CustomMetric shop/cost" {
		t.Errorf("of the namespace that is named it is made by %q, %v", origin, err)
	}
}
