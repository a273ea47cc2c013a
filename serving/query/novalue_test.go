// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
)

// TestNoSeries: what a result lacks is told apart.
func TestNoSeries(t *testing.T) {
	selecting := func(mq MetricQuery, text string) MetricQuery {
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		mq.Select = selector
		return mq
	}
	pods, web := MetricQuery{ObjectLabel: "pod"}, MetricQuery{Object: "web"}
	const selector = " selects (an autoscaler's metric.selector)"
	get := []Sample{sampleOf(1, "verb", "get"), sampleOf(2, "verb", "put")}
	for name, test := range map[string]struct {
		mq      MetricQuery
		samples []Sample
		want    string
	}{
		"no series":              {MetricQuery{}, nil, "NoSeries: the source answers no series to the query"},
		"no label of the object": {pods, get, `NoObject: the source answers 2 series, but none with the label "pod", which names the object: group by it in the query (by (<<.GroupBy>>))`},
		"other objects":          {pods, []Sample{sampleOf(1, "pod", "a")}, `NoSeries: the source answers 1 series, but none of an object that was asked for`},
		"no label that is selected": {selecting(MetricQuery{}, "verb=get,name=a"), get,
			`NoSeries: the source answers 2 series, but none with the label "name", by which the selector` + selector + ": the query must keep it"},
		"other values":            {selecting(MetricQuery{}, "verb=x"), get, `NoSeries: the source answers 2 series, but none that the selector "verb=x"` + selector},
		"a label that is added":   {selecting(MetricQuery{Labels: labels.Set{"team": "a"}}, "team=b"), get, `NoSeries: the source answers 2 series, but none that the selector "team=b"` + selector},
		"of one object":           {selecting(web, "verb=x"), get, `NoSeries: the source answers 2 series, but none that the selector "verb=x"` + selector},
		"of objects":              {selecting(pods, "verb=x"), []Sample{sampleOf(1, "pod", "a", "verb", "get")}, `NoSeries: the source answers 1 series, but none that the selector "verb=x"` + selector},
		"of other objects, there": {selecting(pods, "verb=get"), []Sample{sampleOf(1, "pod", "a", "verb", "get")}, `NoSeries: the source answers 1 series, but none of an object that was asked for`},
	} {
		if got := test.mq.NoSeries(&Result{Time: t0, Samples: test.samples}); got.Error() != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
}

// TestNoValues: an external metric without a value is a NotFound, unless it is the source that fails.
func TestNoValues(t *testing.T) {
	mq := MetricQuery{}
	if err := mq.NoValues(&Result{Time: t0}, &Values{}); !apierrors.IsNotFound(err) || err.Error() != "there is no value: the source answers no series to the query" {
		t.Errorf("no series: %v", err)
	}
	failed := &EvaluationError{Failure: &Failure{Source: "main", Reason: ReasonTimeout}}
	if err := mq.NoValues(nil, &Values{SourceError: failed}); !errors.Is(err, failed) || apierrors.IsNotFound(err) {
		t.Errorf("a failing source: %v", err)
	}
}
