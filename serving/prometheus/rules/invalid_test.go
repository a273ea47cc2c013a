// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// TestMissingMetrics: the error for a metric that does not exist names the rules without metrics,
// and what its namespace declared, and nothing of another namespace or API.
func TestMissingMetrics(t *testing.T) {
	bad := v1alpha1.MetricRule{SeriesQuery: "{", Resources: namespacePod}
	unknown := v1alpha1.MetricRule{SeriesQuery: "x", Resources: v1alpha1.RuleResources{Overrides: map[string]v1alpha1.RuleResource{"brand": {Resource: "brand"}}}}
	good := v1alpha1.MetricRule{SeriesQuery: "lag", Resources: namespacePod}
	const custom, external = `no rule and no CustomMetric makes the metric "m" of pods`, `no rule makes the metric "m", and no ExternalMetric does in namespace "shop"`
	for name, test := range map[string]struct {
		custom, external []v1alpha1.MetricRule
		declared         []*v1alpha1.CustomMetric
		// of the custom and the external metric m; … is any text.
		wantCustom, wantExternal string
	}{
		"nothing":       {[]v1alpha1.MetricRule{good}, nil, nil, custom, external},
		"a custom rule": {[]v1alpha1.MetricRule{good, bad}, nil, nil, custom + "; without metrics because of errors: spec.customMetrics.rules[1] (InvalidSeriesQuery)", external},
		"external rules": {[]v1alpha1.MetricRule{good}, []v1alpha1.MetricRule{bad, bad}, nil, custom,
			external + "; without metrics because of errors: spec.externalMetrics.rules[0] (InvalidSeriesQuery), spec.externalMetrics.rules[1] (InvalidSeriesQuery)"},
		"an unknown resource": {[]v1alpha1.MetricRule{unknown}, nil, nil, custom + "; without metrics because of errors: spec.customMetrics.rules[0] (UnknownResource)", external},
		"many":                {[]v1alpha1.MetricRule{bad, bad, bad, bad, bad, bad, bad}, nil, nil, custom + "; without metrics because of errors: spec.customMetrics.rules[0] (…) and 2 more", external},
		"declared": {nil, nil, []*v1alpha1.CustomMetric{customMetric("shop", "m", "sum(")},
			custom + "; not in effect is CustomMetric shop/m (InvalidQuery: …)", external},
		"declared elsewhere": {nil, nil, []*v1alpha1.CustomMetric{customMetric("bank", "m", "sum("), customMetric("shop", "other", "sum(")}, custom, external},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCatalog(t, backend(test.custom, test.external), seriesOf("lag", "namespace", "pod"))
			c.Declare(test.declared, nil)
			_, _, err := c.ObjectQuery(pods("shop", "m", "a"))
			requireLike(t, err, test.wantCustom)
			_, err = c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "m"})
			requireLike(t, err, test.wantExternal)
		})
	}
}

// requireLike requires a NotFound with a message in which … stands for any text.
func requireLike(t *testing.T, err error, want string) {
	t.Helper()
	if !apierrors.IsNotFound(err) {
		t.Fatalf("error %v", err)
	}
	begin, end, cut := strings.Cut(want, "…")
	if _, last, more := strings.Cut(end, "…"); more {
		end = last
	}
	if got := err.Error(); !cut && got != want || !strings.HasPrefix(got, begin) || !strings.HasSuffix(got, end) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestInvalidParts: each invalid rule has one problem, and a CustomMetric is not invalid because
// the cluster's resources are not known yet.
func TestInvalidParts(t *testing.T) {
	resources := &cluster{index: restmapping.NewMapper(nil, nil)}
	c := NewCatalog(resources, clock.RealClock{})
	c.Apply(backend([]v1alpha1.MetricRule{{SeriesQuery: "{"}, {SeriesQuery: "x", Resources: namespacePod}}, []v1alpha1.MetricRule{{}}))
	brands := customMetric("shop", "brands", "up")
	brands.Spec.DescribedObject.Resource = "brands"
	c.Declare([]*v1alpha1.CustomMetric{customMetric("shop", "bad", "sum("), customMetric("shop", "good", "up"), brands}, nil)
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for _, h := range append(c.InvalidRules(), c.InvalidDeclared()...) {
			got = append(got, h.Path+" "+h.Reason)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	rules := []string{"spec.customMetrics.rules[0] InvalidSeriesQuery", "spec.externalMetrics.rules[0] InvalidSeriesQuery"}
	expect(append(rules, "CustomMetric shop/bad InvalidQuery")...)
	resources.index = index()
	c.SetResources(resources.index)
	expect(append(rules, "CustomMetric shop/bad InvalidQuery", "CustomMetric shop/brands UnknownResource")...)
}
