// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/test/heap"
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
			want: &query.Result{Samples: []query.Sample{
				{Labels: map[string]string{"pod": "a", "empty": ""}, Value: 1.5, Time: instant},
				{Labels: map[string]string{"pod": "b"}, Value: -3, Time: instant.Add(-750 * time.Millisecond)},
			}},
		},
		"empty vector": {
			expression: `nothing`,
			body:       `{"status":"success","data":{"resultType":"vector","result":[]}}`,
			want:       &query.Result{},
		},
		"null, which some servers answer for nothing": {
			expression: `nothing`,
			body:       `{"status":"success","data":{"resultType":"vector","result":null}}`,
			want:       &query.Result{},
		},
		"null of no type": {
			expression: `nothing`,
			body:       `{"status":"success","data":{"resultType":"","result":null}}`,
			want:       &query.Result{},
		},
		"null before its type": {
			expression: `nothing`,
			body:       `{"status":"success","data":{"result":null,"resultType":"vector"}}`,
			want:       &query.Result{},
		},
		"null data": {
			expression: `nothing`,
			body:       `{"status":"success","data":null,"warnings":null,"isPartial":null}`,
			want:       &query.Result{},
		},
		"no histogram": {
			expression: `x`,
			body:       `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1700000000,"1"],"histogram":null}]}}`,
			want:       &query.Result{Samples: []query.Sample{{Labels: map[string]string{"a": "b"}, Value: 1, Time: instant}}},
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
			}, func(s *v1alpha1.PrometheusSource) { s.PartialResponsePolicy = tc.partial })
			got, err := w.source.Evaluate(t.Context(), query.Query{Expression: tc.expression}, instant)
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Time = instant
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty(), cmpopts.EquateNaNs(), cmpopts.IgnoreUnexported(query.Result{}), cmpopts.IgnoreFields(query.Result{}, "Bytes")); diff != "" {
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
		if _, err := w.source.Evaluate(t.Context(), query.Query{Expression: "up"}, instant); failureIn(t, err).Reason != query.ReasonUnauthorized {
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
		if got, err := w.source.Evaluate(t.Context(), query.Query{Expression: "up"}, instant); err != nil || len(got.Samples) != 1 {
			t.Errorf("HTTP %d to POST: %v, %v", code, got, err)
		}
	}
}

// Parameters of the spec are in each request. Those that could replace others of the request are refused by v1alpha1.Validate.
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
			{Name: "extra_filters[]", Value: `{a="b&c"}`}, {Name: "extra_filters[]", Value: "d"}, {Name: "dedup", Value: "true"},
		}
	})
	evaluate := func() {
		if _, err := w.source.Evaluate(t.Context(), query.Query{Expression: "up"}, instant); err != nil {
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
	value := url.Values{"query": {"up"}, "dedup": {"true"}, "time": {"1700000000"}, "extra_filters[]": filters}
	want := []call{
		{"POST", pathQuery, value}, {"POST", pathQuery, value}, {"GET", pathQuery, value},
		{"POST", pathSeries, url.Values{"match[]": {"up"}, "start": {"1700000000"}, "end": {"1700000000"}, "dedup": {"true"}, "extra_filters[]": filters}},
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
	if _, err := w.source.Evaluate(t.Context(), query.Query{Expression: long}, instant); err != nil {
		t.Error(err)
	}
}

// endless writes before and then more samples or text than anybody may read, until the client has gone,
// and adds what it wrote to sent.
func endless(before, again string, sent *atomic.Int64) http.HandlerFunc {
	again = strings.Repeat(again, 1+(64<<10)/len(again))
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, err := w.Write([]byte(before))
		for n := 0; err == nil && n < 256<<20; n += len(again) {
			_, err = w.Write([]byte(again))
			sent.Add(int64(len(again)))
		}
	}
}

// A declared metric's response is read up to its limits, labels included; that of a rule up to
// maxResponseSize.
func TestDeclaredLimits(t *testing.T) {
	var sent atomic.Int64
	label := func(name, value int) http.HandlerFunc {
		return answers("application/json", vectorOf(fmt.Sprintf(`{"metric":{"%s":"%s"},"value":[1700000000,"1"]}`, strings.Repeat("n", name), strings.Repeat("v", value))))
	}
	const longest, much = query.MaxLabelBytes, "limit of a declared metric is 1048576 bytes, which is at most 16385 samples: aggregate more in spec.query, and keep fewer labels"
	tests := map[string]struct {
		handler      http.HandlerFunc
		rule         bool
		maxSize      string
		want         string // in the message
		sentAtMostMB int64
	}{
		"longest label":           {handler: label(longest, longest)},
		"longer value":            {handler: label(1, longest+1), want: `the label "n" of a series has 4097 bytes, and that of a declared metric may have 4096: shorten it in spec.query, or aggregate it away`},
		"longer name":             {handler: label(longest+1, 1), want: "4097 bytes"},
		"longer value of a rule":  {handler: label(1, 8<<20), rule: true},
		"label of 12 MB":          {handler: label(1, 12<<20), want: much},
		"endless label":           {handler: endless(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"`, "x", &sent), want: much, sentAtMostMB: 8},
		"endless samples":         {handler: endless(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}`, `,{"metric":{},"value":[1,"1"]}`, &sent), want: much, sentAtMostMB: 8},
		"endless result, no type": {handler: endless(`{"status":"success","data":{"result":[1`, `,1`, &sent), want: much, sentAtMostMB: 8},
		"endless label of a rule": {handler: endless(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"`, "x", &sent), rule: true, want: "maxResponseSize is 33554432 bytes", sentAtMostMB: 48},
		"lower maxResponseSize":   {handler: label(1, 8<<20), maxSize: "64Ki", want: "maxResponseSize is 65536 bytes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sent.Store(0)
			w := newWorld(t, test.handler, func(s *v1alpha1.PrometheusSource) {
				s.MaxResponseSize = test.maxSize
			})
			got, err := w.source.Evaluate(t.Context(), query.Query{Expression: "x", Declared: !test.rule}, instant)
			if test.want == "" {
				if err != nil || len(got.Samples) != 1 {
					t.Errorf("%v (%v)", got, err)
				}
				return
			}
			if f := failureIn(t, err); f.Reason != query.ReasonTooLarge || !strings.Contains(f.Message, test.want) {
				t.Errorf("%s: %s", f.Reason, f.Message)
			}
			if n := sent.Load() >> 20; n > test.sentAtMostMB {
				t.Errorf("%d MB were sent", n)
			}
		})
	}
}

// The bytes of a result are what it keeps alive, whether its texts differ or not.
func TestResultBytes(t *testing.T) {
	const n = 4000
	samples := func(labels int, value func(i, label int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(`,{"metric":{"__name__":"x"`)
			for l := range labels {
				fmt.Fprintf(&b, `,"label_%d":"%s"`, l, value(i, l))
			}
			b.WriteString(`},"value":[1700000000,"1"]}`)
		}
		return vectorOf(b.String()[1:])
	}
	same := func(int, int) string { return "the-same-value" }
	long := strings.Repeat("x", 1000)
	tests := map[string]string{
		"equal values":  samples(2, same),
		"other values":  samples(8, func(i, l int) string { return fmt.Sprintf("value-%d-of-%d", i, l) }),
		"many labels":   samples(40, same),
		"long values":   samples(1, func(i, _ int) string { return fmt.Sprint(i, long) }),
		"escaped":       samples(1, func(i, _ int) string { return fmt.Sprint(i, `\u0041`, long) }),
		"a large label": vectorOf(`{"metric":{"a":"` + strings.Repeat("x", 4<<20) + `"},"value":[1700000000,"1"]}`),
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			counted := 0
			kept := heap.Retained(func() []query.Sample {
				v := sampleReader{at: instant, bounds: bounds{samples: n}}
				if _, err := readEnvelope(strings.NewReader(body), v.read); err != nil {
					t.Fatal(err)
				}
				counted = v.size
				return v.samples
			})
			if kept < 0.6*float64(counted) || kept > 1.3*float64(counted) {
				t.Errorf("%d bytes are counted, and %.0f kept", counted, kept)
			}
		})
	}
}
