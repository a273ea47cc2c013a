// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"net/http/httptest"
	"regexp"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/custommetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
	"github.com/metricsbackend/metrics-backend-operator/test/apiserver"
)

// valuesInterval is how often the metric is evaluated: answers show whole seconds.
const valuesInterval = time.Second

var valuePods = []string{"cart-1", "cart-2", "cart-3"}

// hits is a metric of pods, the objects, and the source of its values.
type hits struct{}

func (hits) metric() query.ObjectMetric {
	return query.ObjectMetric{
		Resource: schema.GroupResource{Resource: "pods"}, Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Namespaced: true, Name: "hits",
	}
}

func (h hits) ObjectMetrics(int) (first []query.ObjectMetric, total int) {
	return []query.ObjectMetric{h.metric()}, 1
}

func (h hits) ObjectQuery(query.ObjectRequest) (query.MetricQuery, query.ObjectMetric, error) {
	return query.MetricQuery{
		Query:  query.Query{Source: "main", Expression: "hits", Interval: valuesInterval},
		Origin: "spec.customMetrics.rules[0]", ObjectLabel: "pod",
	}, h.metric(), nil
}

func (hits) Names(context.Context, schema.GroupVersionResource, string, labels.Selector) ([]string, error) {
	return valuePods, nil
}

func (hits) Known(schema.GroupVersionResource, string, labels.Selector) ([]string, bool) {
	return valuePods, true
}

func (hits) Evaluate(_ context.Context, _ query.Query, at time.Time) (*query.Result, error) {
	answer := &query.Result{Time: at}
	for _, pod := range valuePods {
		answer.Samples = append(answer.Samples, query.Sample{Labels: map[string]string{"pod": pod}, Value: float64(at.Unix() % 1000), Time: at})
	}
	return answer, nil
}

// newValuesReference is custom.metrics.k8s.io on a real generic API server.
func newValuesReference(t *testing.T) *reference {
	t.Helper()
	c, random := clock.RealClock{}, func() float64 { return 0.5 }
	evaluator := query.NewEvaluator(c, random, func(string) (query.Source, bool) { return hits{}, true }, 200)
	definitions := apiserver.Definitions(resourcemetrics.GetOpenAPIDefinitions, custommetrics.OpenAPIDefinitions)
	generic := apiserver.New(t, custommetrics.Scheme, definitions, func(config *genericapiserver.Config) {
		config.RequestInfoResolver = valueapi.NewRequestInfoResolver(genericapiserver.NewRequestInfoResolver(config), "custom.metrics.k8s.io")
	})
	group, err := custommetrics.InstallAPI(generic, custommetrics.Options{
		Metrics: hits{}, Objects: hits{},
		Options: valueapi.Options{
			Enabled: func(schema.GroupVersion) bool { return true }, Querier: evaluator, Quota: stream.NewQuota(c, random, roomy), Clock: c, Random: random, MinRequestTimeout: 30 * time.Minute,
			Settings: stream.Settings{BookmarkInterval: time.Second, MaxAge: time.Hour, StallTimeout: time.Minute},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	generic.PrepareRun()
	r := &reference{server: httptest.NewServer(stream.WithRequestMetadata(generic.Handler))}
	r.config = &rest.Config{Host: r.server.URL}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { evaluator.Run(ctx) })
	running.Go(func() { group.Run(ctx) })
	t.Cleanup(func() {
		r.server.CloseClientConnections()
		r.server.Close()
		cancel()
		running.Wait()
	})
	return r
}

func valuesOptions() Options {
	return Options{Patience: referencePatience, PointInterval: 2 * valuesInterval, BookmarkInterval: 2 * time.Second}
}

func hitsAPI() API { return CustomMetric(hits{}.metric().Resource, "shop", "hits") }

// TestValuesConformance: the checks that need no metadata pass for a custom metric.
func TestValuesConformance(t *testing.T) {
	t.Parallel()
	report, err := Run(t.Context(), newValuesReference(t).config, hitsAPI(), valuesOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", report)
	if !report.Served || len(report.Versions) != 2 {
		t.Errorf("served %v, versions %q", report.Served, report.Versions)
	}
	for _, outcome := range []Outcome{Failed, Unseen} {
		for _, r := range report.With(outcome, Promised) {
			t.Errorf("%s, %s %s: %s", r.Check, r.Version, r.Resource, r.Why)
		}
	}
}

// valueMutants are the mutants whose fault values can have, too, and the check that must say so.
var valueMutants = map[string]string{
	"some objects are never sent":                             "first-all",
	"only the first data points are sent":                     "then-each-new",
	"a new data point is MODIFIED":                            "added-only",
	"bookmarks come unasked":                                  "bookmarks-only-when-asked",
	"there are no bookmarks but at the end of initial events": "bookmark-interval",
}

// TestValueMutants: what tells objects without metadata apart is enough to see what is
// wrong with a server of them.
func TestValueMutants(t *testing.T) {
	t.Parallel()
	r := newValuesReference(t)
	r.keepPace(t)
	for name, check := range valueMutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := valuesOptions()
			options.Patience, options.Only = mutantPatience, regexp.MustCompile("^"+check+"$")
			report := r.judge(t, mutants[name].mutant, hitsAPI(), options)
			if got := len(report.With(Failed, Promised)); got != 2 {
				t.Errorf("%s failed in %d versions, want 2:\n%s", check, got, report)
			}
		})
	}
}
