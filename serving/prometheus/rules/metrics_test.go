// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"k8s.io/utils/clock"

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

func TestDivide(t *testing.T) {
	var names []string
	for range 5000 {
		names = append(names, fmt.Sprint(rand.IntN(1e9)))
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	for _, most := range []int{0, 1, 7, 2000, 2500, len(sorted), len(sorted) + 1, math.MaxInt} {
		s, omitted := shares{}, map[string]int{}
		for _, name := range rand.Perm(len(sorted)) {
			s.add(shareKey{owner: "x"}, &query.ObjectMetric{Name: sorted[name]})
		}
		listed, left := s.divide(most, omitted)
		want := min(most, len(sorted))
		if len(listed) != want || left != most-want || omitted["x"] != len(sorted)-want {
			t.Errorf("of %d: %d listed, %d left, %d omitted", most, len(listed), left, omitted["x"])
		}
		for i, m := range listed {
			if m.Name != sorted[i] {
				t.Fatalf("of %d: %d is %s, want %s", most, i, m.Name, sorted[i])
			}
		}
	}
}

// Replicas list the same metrics, in whatever order they come and whatever their names cost.
func TestDivideIsStable(t *testing.T) {
	var want []query.ObjectMetric
	for range 50 {
		s := shares{}
		for _, i := range rand.Perm(60) {
			name := fmt.Sprintf("a%02d", i)
			if i < 14 {
				name += strings.Repeat("x", 200)
			}
			s.add(shareKey{owner: "x"}, &query.ObjectMetric{Name: name})
		}
		got, _ := s.divide(12, map[string]int{})
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("listed (-before +now):\n%s", diff)
		}
	}
}

// TestMetricNames: names are as in the schema of metricName, wherever they are from.
func TestMetricNames(t *testing.T) {
	long := strings.Repeat("x", 253)
	for name, want := range map[string]string{
		long: "", "job:requests:rate5m": "", "x-äöü.y": "", strings.Repeat("ä", 253): "",
		long + "x": "is longer than 253", strings.Repeat("x", 16<<10): "is longer than 253", strings.Repeat("ä", 254): "is longer than 253",
		"a b": "white space", "a\nb": "white space", "a\x7f": "control character", "\xff": "control character", "a%b": "has a character", "..": "part of a path",
		v1alpha1.NoMetrics: "while there are no metrics", "No-Metrics": "while there are no metrics",
	} {
		spec := backend([]v1alpha1.MetricRule{{SeriesQuery: "x", Resources: namespacePod, Name: v1alpha1.RuleName{As: name}}}, []v1alpha1.MetricRule{{SeriesQuery: "x", Name: v1alpha1.RuleName{As: name}}})
		c := newCatalog(t, spec, seriesOf("x", "namespace", "pod"))
		declared := externalMetric("shop", "x", "up")
		declared.Spec.MetricName = name
		c.Declare(nil, []*v1alpha1.ExternalMetric{declared})
		messages := []string{c.Declared()[0].Message}
		for _, r := range c.Health().Rules {
			messages = append(messages, r.Message)
		}
		if want == "" && (len(messages) > 1 || messages[0] != "") {
			t.Errorf("%.20q: %q", name, messages)
		}
		for _, m := range messages {
			if !strings.Contains(m, want) || len(m) > 300 || want != "" && len(messages) != 3 {
				t.Errorf("%.20q: %q, want %q", name, messages, want)
			}
		}
	}
}

// TestListIsFair: the aggregated discovery document is small whatever the names that applications and
// teams choose, and no rule, resource or namespace pushes out another one.
func TestListIsFair(t *testing.T) {
	rule := func(prefix string) v1alpha1.MetricRule {
		return v1alpha1.MetricRule{SeriesQuery: `{__name__=~"` + prefix + `.*"}`, Resources: v1alpha1.RuleResources{Template: "<<.Resource>>"}}
	}
	rules := []v1alpha1.MetricRule{rule("a"), rule("b"), rule("c")}
	c := NewCatalog(&cluster{index: index()}, clock.RealClock{})
	c.Apply(backend(rules, rules[:1]))
	for _, s := range c.Selections() {
		prefix := s.Selector[len(`{__name__=~"`):][:1]
		var all []series.Series
		for i := range map[string]int{"a": 3000, "b": 3000, "c": 10}[prefix] {
			name := fmt.Sprintf("%s%04d", prefix, i)
			if prefix == "a" {
				name += strings.Repeat("x", 248)
			}
			all = append(all, seriesOf(name, "namespace", "pod", "service"))
		}
		all = append(all, seriesOf(prefix+strings.Repeat("y", 16<<10), "namespace"))
		c.SetSeries(s, all)
	}
	listed, total := c.ObjectMetrics(maxDiscovered)
	counts := map[string]int{}
	for _, m := range listed {
		counts[m.Name[:1]+" "+m.Resource.Resource]++
	}
	// A name of 253 characters counts as 6.
	if diff := cmp.Diff(map[string]int{
		"a namespaces": 54, "a pods": 55, "a services": 55, "b namespaces": 328, "b pods": 328, "b services": 328, "c namespaces": 10, "c pods": 10, "c services": 10,
	}, counts); diff != "" || total != 18030 {
		t.Errorf("of %d (-want +got):\n%s", total, diff)
	}
	if size := documentSize(t, c); size > 1<<20 {
		t.Errorf("the document has %d bytes", size)
	}
	var told []string
	for _, r := range c.Health().Rules {
		told = append(told, fmt.Sprintf("%s %s: %.25s", strings.TrimPrefix(r.Path, "spec."), r.Reason, r.Message))
	}
	if diff := cmp.Diff([]string{
		"customMetrics.rules[0] InvalidName: 1 series make no metric: ", "customMetrics.rules[0] OmittedFromDiscovery: 8836 metrics can be read,",
		"customMetrics.rules[1] InvalidName: 1 series make no metric: ", "customMetrics.rules[1] OmittedFromDiscovery: 8016 metrics can be read,",
		"customMetrics.rules[2] InvalidName: 1 series make no metric: ",
		"externalMetrics.rules[0] InvalidName: 1 series make no metric: ", "externalMetrics.rules[0] OmittedFromDiscovery: 2667 metrics can be read,",
	}, told); diff != "" {
		t.Errorf("health (-want +got):\n%s", diff)
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
	own.Spec.DescribedObject = v1alpha1.DescribedObjects{Resource: "namespaces", Name: "shop"}
	only := customMetric("shop", "orders", "vector(0)")
	only.Spec.DescribedObject = own.Spec.DescribedObject
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
