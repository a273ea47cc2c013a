// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus"
)

// TestVictoriaMetrics: what differs from Prometheus is as docs/reference/prometheus.md says.
func TestVictoriaMetrics(t *testing.T) {
	t.Parallel()
	workload, target := serveSeries(t, series)
	stock := prometheus.StartVictoriaMetrics(t, prometheus.Scrape(target))
	server := prometheus.StartVictoriaMetrics(t, prometheus.Scrape(target), "-search.latencyOffset=0s", "-search.maxUniqueTimeseries=3")
	server.WaitFor(t, scraped)
	src := newSource(t, v1alpha1.PrometheusSource{URL: server.URL}, nil)

	at := time.Now().Truncate(time.Millisecond)
	for expression, want := range map[string]struct{ least, most float64 }{
		`sum(queue_length)`:                           {21.5, 21.5},
		`sum(rate(http_requests_total[5s])) by (pod)`: {20, 30},
		`scalar(other)`:                               {1, 1},
	} {
		got, err := src.Evaluate(t.Context(), query.Query{Expression: expression}, at)
		if err != nil || len(got.Samples) != 1 || got.Samples[0].Value < want.least || got.Samples[0].Value > want.most || !got.Samples[0].Time.Equal(at) {
			t.Errorf("%s: %+v, %v, want a value from %g to %g, of %s", expression, got, err, want.least, want.most, at)
		}
	}
	if got, err := src.Evaluate(t.Context(), query.Query{Expression: `0 * queue_length / 0`}, at); err != nil || len(got.Samples) != 0 {
		t.Errorf("NaN: %+v, %v, want no samples", got, err)
	}

	one := newSource(t, v1alpha1.PrometheusSource{URL: server.URL, QueryParameters: []v1alpha1.SourceQueryParameter{
		{Name: "extra_label", Value: "namespace=a"}, {Name: "extra_label", Value: "pod=one"},
	}}, nil)
	if got, err := one.Evaluate(t.Context(), query.Query{Expression: `sum(queue_length)`}, at); err != nil || len(got.Samples) != 1 || got.Samples[0].Value != 17 {
		t.Errorf("extra_label twice: %+v, %v, want the sum of one pod", got, err)
	}
	rejections(t, newSource(t, v1alpha1.PrometheusSource{URL: server.URL, QueryParameters: []v1alpha1.SourceQueryParameter{{Name: "latency_offset", Value: "0s"}}}, nil), map[string]string{
		"vector(1)": "latency_offset=0ms is out of allowed range",
	})

	// The messages do not begin with the query that VictoriaMetrics repeats.
	rejections(t, src, map[string]string{
		`sum(queue_length`:          `argList: unexpected token`,
		`nonsense(queue_length)`:    `unsupported function "nonsense"`,
		`queue_length[1m]`:          "ranges of samples",
		`other + on() queue_length`: "duplicate time series on the right side",
		`{__name__=~".+"}`:          "the number of matching timeseries exceeds 3",
		`queue_length{pod=~"` + strings.Repeat("workload-5d4f8c7b9d-x2x7q|", 700) + `one"}`: "too long query; got",
	})
	_, err := src.Evaluate(t.Context(), query.Query{Expression: `queue_length{"app.kubernetes.io/name"="web"}`}, at)
	var f *query.Failure
	if !errors.As(err, &f) || !f.Unparsable || !strings.Contains(f.Message, "app.kubernetes.io/name") {
		t.Errorf("a quoted key: %v, want a failure to parse it", err)
	}

	// The index of series is by day.
	if err := workload.Set(strings.Replace(strings.Replace(series, "other{namespace=\"b\"} 1\n", "", 1), " 17\n", " 18\n", 1)); err != nil {
		t.Fatal(err)
	}
	changed := time.Now()
	server.WaitFor(t, `absent(other)`)
	if body := seriesOf(t, server, `other`, time.Now().Add(-time.Second)); !strings.Contains(body, `"__name__":"other"`) {
		t.Errorf("series of the last second: %s, want one that has ended today", body)
	}

	// Values are those of half a minute before, unless a parameter says otherwise.
	old := newSource(t, v1alpha1.PrometheusSource{URL: stock.URL}, nil)
	recent := newSource(t, v1alpha1.PrometheusSource{URL: stock.URL, QueryParameters: []v1alpha1.SourceQueryParameter{{Name: "latency_offset", Value: "1s"}}}, nil)
	outcome.Eventually(t, time.Minute, "a latency_offset of 1s returns the new value", func(ctx context.Context) error {
		got, err := recent.Evaluate(ctx, query.Query{Expression: `queue_length{pod="one"}`}, time.Now())
		if err != nil || len(got.Samples) != 1 || got.Samples[0].Value != 18 {
			return fmt.Errorf("%+v, %w", got, err)
		}
		return nil
	})
	tookRecent := time.Since(changed)
	outcome.Eventually(t, time.Minute, "the stock VictoriaMetrics returns the new value", func(ctx context.Context) error {
		got, err := old.Evaluate(ctx, query.Query{Expression: `queue_length{pod="one"}`}, time.Now())
		if err != nil || len(got.Samples) != 1 || got.Samples[0].Value != 18 {
			return fmt.Errorf("%+v, %w", got, err)
		}
		return nil
	})
	if took := time.Since(changed); took < 20*time.Second || took-tookRecent < 10*time.Second {
		t.Errorf("a stock VictoriaMetrics returned a new value after %s, and with latency_offset after %s, want about 30 s and 2 s", took, tookRecent)
	} else {
		t.Logf("a stock VictoriaMetrics returned a new value after %s, and with latency_offset after %s", took, tookRecent)
	}
}

// seriesOf returns the response about a selector's series since an instant.
func seriesOf(t *testing.T, server *prometheus.Server, selector string, since time.Time) string {
	t.Helper()
	response, err := http.Get(fmt.Sprintf("%s/api/v1/series?match[]=%s&start=%d", server.URL, url.QueryEscape(selector), since.Unix()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
