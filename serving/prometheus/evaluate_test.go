// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"io"
	"log"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

var quiet = log.New(io.Discard, "", 0)

func TestEvaluate(t *testing.T) {
	tests := map[string]struct {
		expression, body string
		partial          v1alpha1.PartialResponsePolicy
		want             *query.Result
	}{
		"vector": {
			expression: `sum(rate(http_requests_total[5m])) by (pod)`,
			body: `{"status":"success","data":{"resultType":"vector","result":[` +
				`{"metric":{"__name__":"x","pod":"a","empty":""},"value":[1700000000,"1.5"]},` +
				`{"metric":{"pod":"b"},"value":[1699999999.25,"-3"]}]}}`,
			want: &query.Result{Window: 5 * time.Minute, Samples: []query.Sample{
				{Labels: map[string]string{"pod": "a", "empty": ""}, Value: 1.5, Time: instant},
				{Labels: map[string]string{"pod": "b"}, Value: -3, Time: instant.Add(-750 * time.Millisecond)},
			}},
		},
		"empty vector": {
			expression: `nothing`,
			body:       `{"status":"success","data":{"resultType":"vector","result":[]}}`,
			want:       &query.Result{},
		},
		"scalar": {
			expression: `scalar(x)`,
			body:       `{"status":"success","data":{"resultType":"scalar","result":[1700000000,"7"]}}`,
			want:       &query.Result{Samples: []query.Sample{{Labels: map[string]string{}, Value: 7, Time: instant}}},
		},
		"no numbers": {
			expression: `x / 0`,
			body: `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"1"},"value":[1700000000,"NaN"]},` +
				`{"metric":{"a":"2"},"value":[1700000000,"+Inf"]},{"metric":{"a":"3"},"value":[1700000000,"-Inf"]}]}}`,
			want: &query.Result{Samples: []query.Sample{
				{Labels: map[string]string{"a": "1"}, Value: math.NaN(), Time: instant},
				{Labels: map[string]string{"a": "2"}, Value: math.Inf(1), Time: instant},
				{Labels: map[string]string{"a": "3"}, Value: math.Inf(-1), Time: instant},
			}},
		},
		"partial, and accepted": {
			expression: `x`, partial: v1alpha1.PartialResponseAccept,
			body: `{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[{"metric":{},"value":[1700000000,"1"]}]},"warnings":["store down"]}`,
			want: &query.Result{Samples: []query.Sample{{Labels: map[string]string{}, Value: 1, Time: instant}}, Warnings: []string{"store down"}},
		},
		"warnings about the query": {
			expression: `x`,
			body: `{"status":"success","data":{"resultType":"vector","result":[]},` +
				`"warnings":["PromQL warning: quantile value should be between 0 and 1, got 2 (1:10)","3 more warning annotations omitted"]}`,
			want: &query.Result{Warnings: []string{"PromQL warning: quantile value should be between 0 and 1, got 2 (1:10)", "3 more warning annotations omitted"}},
		},
		"warnings, and members that nobody knows": {
			expression: `x`, partial: v1alpha1.PartialResponseAccept,
			body: `{"status":"success","isPartial":false,"warnings":["one\nlong\tline","two"],"infos":["i"],"data":{"resultType":"vector","result":[],"stats":{"a":[1]}}}`,
			want: &query.Result{Warnings: []string{"one long line", "two"}},
		},
		"a larger language than PromQL": {
			expression: `range_normalize(x)[5m:1m] keep_metric_names`,
			body:       `{"status":"success","data":{"resultType":"vector","result":[]}}`,
			want:       &query.Result{},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var asked url.Values
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.URL.Path != "/api/v1/query" || r.ProtoMajor != 2 {
					t.Errorf("asked with %s %s %s", r.Method, r.URL.Path, r.Proto)
				}
				_ = r.ParseForm()
				asked = r.PostForm
				answers("application/json", tc.body)(rw, r)
			}, func(s *v1alpha1.PrometheusSource) { s.PartialResponse = tc.partial })
			got, err := w.source.Evaluate(t.Context(), tc.expression, instant)
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Time = instant
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty(), cmpopts.EquateNaNs(), cmpopts.IgnoreUnexported(query.Result{})); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			want := url.Values{"query": {tc.expression}, "time": {"1700000000"}, "timeout": {"4s"}}
			if diff := cmp.Diff(want, asked); diff != "" {
				t.Errorf("query (-want +got):\n%s", diff)
			}
		})
	}
}

// Credentials that are refused are not tried with each method each time: a query in a URL
// is in the logs of proxies.
func TestEvaluateRefused(t *testing.T) {
	var mu sync.Mutex
	var methods []string
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		methods = append(methods, r.Method)
		http.Error(rw, "no", http.StatusForbidden)
	}, nil)
	for _, wait := range []time.Duration{0, time.Minute, postOnlyTime} {
		w.clock.Step(wait)
		if _, err := w.source.Evaluate(t.Context(), "up", instant); failureIn(t, err).Reason != query.ReasonUnauthorized {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"POST", "GET", "POST", "POST", "GET"}, methods); diff != "" {
		t.Errorf("methods (-want +got):\n%s", diff)
	}
}

// Where the server has no POST, as some proxies do, the query goes into the URL.
func TestEvaluateWithoutPOST(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented} {
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				http.Error(rw, "no", code)
				return
			}
			if got := r.URL.Query().Get("query"); got != "up" {
				t.Errorf("query %q", got)
			}
			answers("application/json", `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000000,"1"]}]}}`)(rw, r)
		}, nil)
		if got, err := w.source.Evaluate(t.Context(), "up", instant); err != nil || len(got.Samples) != 1 {
			t.Errorf("HTTP %d to POST: %v, %v", code, got, err)
		}
	}
}

// Parameters of the spec are in each request, and cannot replace those of the request.
func TestQueryParameters(t *testing.T) {
	type call struct {
		Method, Path string
		Form         url.Values
	}
	var mu sync.Mutex
	var calls []call
	refused := false
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_ = r.ParseForm()
		r.Form.Del("timeout")
		calls = append(calls, call{r.Method, r.URL.Path, r.Form})
		switch {
		case refused && r.Method == http.MethodPost:
			http.Error(rw, "no", http.StatusMethodNotAllowed)
		case r.URL.Path == pathSeries:
			answers("application/json", someSeries)(rw, r)
		default:
			answers("application/json", oneSample)(rw, r)
		}
	}, func(s *v1alpha1.PrometheusSource) {
		s.QueryParameters = []v1alpha1.SourceQueryParameter{
			{Name: "extra_filters[]", Value: `{a="b&c"}`}, {Name: "extra_filters[]", Value: "d"}, {Name: "query", Value: "other"},
		}
	})
	evaluate := func() {
		if _, err := w.source.Evaluate(t.Context(), "up", instant); err != nil {
			t.Error(err)
		}
	}
	evaluate()
	refused = true
	evaluate()
	refused = false
	if err := w.source.lookup(t.Context(), "up", instant, instant, func(map[string]string) {}); err != nil {
		t.Error(err)
	}
	filters := []string{`{a="b&c"}`, "d"}
	value := url.Values{"query": {"up", "other"}, "time": {"1700000000"}, "extra_filters[]": filters}
	want := []call{
		{"POST", pathQuery, value}, {"POST", pathQuery, value}, {"GET", pathQuery, value},
		{"POST", pathSeries, url.Values{"match[]": {"up"}, "start": {"1700000000"}, "end": {"1700000000"}, "query": {"other"}, "extra_filters[]": filters}},
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestEvaluateLongQuery(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if len(r.URL.RawQuery) > 0 {
			t.Errorf("%d bytes in the URL", len(r.URL.RawQuery))
		}
		answers("application/json", `{"status":"success","data":{"resultType":"vector","result":[]}}`)(rw, r)
	}, nil)
	long := `x{pod=~"` + strings.Repeat("some-pod|", 20000) + `"}`
	if _, err := w.source.Evaluate(t.Context(), long, instant); err != nil {
		t.Error(err)
	}
}
