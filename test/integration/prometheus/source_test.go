// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	source "github.com/metricsbackend/metrics-backend-operator/serving/prometheus"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus/meter"
)

// series are those of a workload, of which scraped is true once enough of them are stored.
const series = `
queue_length{namespace="a",pod="one"} 17
queue_length{namespace="a",pod="two"} 4.5
http_requests_total{namespace="a",pod="one",code="200"} 0 +25
other{namespace="b"} 1
`

const scraped = `rate(http_requests_total[5s]) > 20`

// scenario is a workload, a Prometheus that scrapes it, and the source under test.
type scenario struct {
	meter  *meter.Meter
	server *prometheus.Server
	source *source.Source
}

// serveSeries serves series to scrape until the test has ended.
func serveSeries(t *testing.T, series string) (workload *meter.Meter, url string) {
	t.Helper()
	workload = meter.New()
	if err := workload.Set(series); err != nil {
		t.Fatal(err)
	}
	target := httptest.NewServer(workload)
	t.Cleanup(target.Close)
	return workload, target.URL
}

// start waits until an expression over the workload's series has a value.
func start(t *testing.T, series, until string, args ...string) *scenario {
	t.Helper()
	workload, url := serveSeries(t, series)
	s := &scenario{meter: workload, server: prometheus.Start(t, prometheus.Scrape(url), args...)}
	s.server.WaitFor(t, until)
	s.source = newSource(t, v1alpha1.PrometheusSource{URL: s.server.URL}, nil)
	return s
}

func newSource(t *testing.T, spec v1alpha1.PrometheusSource, secrets sourceclient.Secrets) *source.Source {
	t.Helper()
	s, err := source.New(sourceclient.Options{Name: "real", Secrets: secrets, Clock: clock.RealClock{}}, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// rejections checks that a source rejects each query with a message.
func rejections(t *testing.T, s *source.Source, messages map[string]string) {
	t.Helper()
	for expression, message := range messages {
		_, err := s.Evaluate(t.Context(), query.Query{Expression: expression}, time.Now())
		var f *query.Failure
		if !errors.As(err, &f) || f.Reason != query.ReasonRejected || f.Source != "real" || !strings.Contains(f.Message, message) || strings.Contains(f.Message, "error when executing query=") {
			t.Errorf("%s: %v, want Rejected with %q", expression, err, message)
		}
	}
}

func TestEvaluate(t *testing.T) {
	t.Parallel()
	s := start(t, series, scraped, "--query.max-samples=100000")
	at := time.Now().Truncate(time.Millisecond)
	got, err := s.source.Evaluate(t.Context(), query.Query{Expression: `queue_length{namespace="a"}`}, at)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Samples {
		// The labels of the scrape itself.
		delete(got.Samples[i].Labels, "instance")
		delete(got.Samples[i].Labels, "job")
	}
	slices.SortFunc(got.Samples, func(a, b query.Sample) int { return strings.Compare(a.Labels["pod"], b.Labels["pod"]) })
	want := &query.Result{Time: at, Samples: []query.Sample{
		{Labels: map[string]string{"namespace": "a", "pod": "one"}, Value: 17, Time: at},
		{Labels: map[string]string{"namespace": "a", "pod": "two"}, Value: 4.5, Time: at},
	}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(query.Result{}), cmpopts.IgnoreFields(query.Result{}, "Bytes")); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}

	// Prometheus calculates a lower rate while its scrapes are late.
	outcome.Eventually(t, time.Minute, "a rate of 25 a second", func(ctx context.Context) error {
		got, err := s.source.Evaluate(ctx, query.Query{Expression: `sum(rate(http_requests_total[5s])) by (pod)`}, time.Now())
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || len(got.Samples) == 1 && got.Samples[0].Value > 30 {
			t.Fatalf("rate of 25 a second: %+v, %v", got, err)
		}
		if len(got.Samples) != 1 || got.Samples[0].Value < 20 {
			return fmt.Errorf("it is %+v", got.Samples)
		}
		return nil
	})
	if got, err = s.source.Evaluate(t.Context(), query.Query{Expression: `absent_metric`}, time.Now()); err != nil || len(got.Samples) != 0 {
		t.Errorf("no series: %+v, %v", got, err)
	}
	if got, err = s.source.Evaluate(t.Context(), query.Query{Expression: `scalar(other)`}, time.Now()); err != nil || len(got.Samples) != 1 || got.Samples[0].Value != 1 {
		t.Errorf("scalar: %+v, %v", got, err)
	}
	// Longer than any URL may be.
	long := `queue_length{pod=~"` + strings.Repeat("workload-5d4f8c7b9d-x2x7q|", 2000) + `one"}`
	if got, err = s.source.Evaluate(t.Context(), query.Query{Expression: long}, time.Now()); err != nil || len(got.Samples) != 1 {
		t.Errorf("a long query: %+v, %v", got, err)
	}
}

// What Prometheus refuses comes with its own words, and says nothing against its health.
func TestRejected(t *testing.T) {
	t.Parallel()
	s := start(t, series, scraped, "--query.max-samples=20")
	rejections(t, s.source, map[string]string{
		`sum(queue_length`:       "parse error",
		`nonsense(queue_length)`: "unknown function",
		`queue_length[1m]`:       "ranges of samples",
		`"text"`:                 "of type string",
		`max_over_time(http_requests_total[5m:100ms])`: "too many samples",
		`other + on() queue_length`:                    "many matching",
	})
	// No pair is an empty answer, and no error.
	if answer, err := s.source.Evaluate(t.Context(), query.Query{Expression: `queue_length * other`}, time.Now()); err != nil || len(answer.Samples) != 0 {
		t.Errorf("no pair: %+v, %v", answer, err)
	}
}

func TestHealthAndSeries(t *testing.T) {
	t.Parallel()
	s := start(t, series, scraped)
	spec := v1alpha1.PrometheusSource{URL: s.server.URL, SeriesInterval: &metav1.Duration{Duration: 5 * time.Second}, SeriesLookback: &metav1.Duration{Duration: 5 * time.Second}}
	src := newSource(t, spec, nil)
	news := make(chan string, 100)
	src.Series().OnChange(func(matcher string) { news <- matcher })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		src.Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	const all, wrong = `{namespace!="",__name__!="other"}`, `{__name__=~"("}`
	src.Series().SetMatchers([]string{all, wrong})
	for range 2 {
		<-news
	}
	found := src.Series().Found(all)
	var names []string
	for _, series := range found.Series {
		names = append(names, series.Name+" "+strings.Join(series.Labels, ","))
	}
	if diff := cmp.Diff([]string{"http_requests_total code,instance,job,namespace,pod", "queue_length instance,job,namespace,pod"}, names); diff != "" || found.Err != nil {
		t.Errorf("found %+v (-want +got):\n%s", found, diff)
	}
	var f *query.Failure
	if err := src.Series().Found(wrong).Err; !errors.As(err, &f) || f.Reason != query.ReasonRejected {
		t.Errorf("a wrong matcher: %v", err)
	}
	if h := src.Health(); !h.Healthy {
		t.Errorf("health %+v", h)
	}

	// A series that begins is known soon; one that ends, after its age.
	if err := s.meter.Set("queue_length{namespace=\"a\",pod=\"one\"} 1\nfresh{namespace=\"a\"} 1\n"); err != nil {
		t.Fatal(err)
	}
	want := []string{"fresh", "queue_length"}
	for !slices.Equal(names, want) {
		select {
		case <-news:
		case <-time.After(30 * time.Second):
			t.Fatalf("series %v after 30 s, want %v", names, want)
		}
		names = nil
		for _, series := range src.Series().Found(all).Series {
			names = append(names, series.Name)
		}
	}
}
