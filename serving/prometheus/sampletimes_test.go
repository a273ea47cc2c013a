// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

func TestEvaluateWithSampleTimes(t *testing.T) {
	const (
		rejects = `{"status":"error","errorType":"bad_data","error":"unknown function timestamp"}`
		plain   = `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"pod":"a"},"value":[1700000000,"1"]},{"metric":{"pod":"b"},"value":[1700000000,"2"]}]}}`
		timed   = `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"pod":"a"},"value":[1700000000,"1"]},{"metric":{"pod":"b"},"value":[1700000000,"2"]},{"metric":{"pod":"c"},"value":[1700000000,"3"]},` +
			`{"metric":{"pod":"d"},"value":[1700000000,"4"]},{"metric":{"pod":"e"},"value":[1700000000,"5"]},` +
			`{"metric":{"pod":"a","metricsbackend_sample_time":"1"},"value":[1700000000,"1699999990.25"]},{"metric":{"pod":"b","metricsbackend_sample_time":"1"},"value":[1700000000,"-Inf"]},{"metric":{"pod":"c","metricsbackend_sample_time":"1"},"value":[1700000000,"NaN"]},` +
			`{"metric":{"pod":"d","metricsbackend_sample_time":"1"},"value":[1700000000,"1800000000"]},{"metric":{"pod":"e","metricsbackend_sample_time":"1"},"value":[1700000000,"1700000000.5"]},` +
			`{"metric":{"pod":"gone","metricsbackend_sample_time":"1"},"value":[1700000000,"1699999990"]}]}}`
		asked = `(sum by (pod) (x)) or label_replace(min by (pod) (timestamp(x)), "metricsbackend_sample_time", "1", "", "")`
	)
	at := func(pod string, value float64, since, age time.Duration) query.Sample {
		return query.Sample{Labels: map[string]string{"pod": pod}, Value: value, Time: instant.Add(since), Age: age}
	}
	unknown := []query.Sample{at("a", 1, 0, 0), at("b", 2, 0, 0)}
	tests := map[string]struct {
		expression string
		times      query.SampleTimes
		// with is the response to the expression with sample times.
		with   string
		want   []query.Sample
		reason query.Reason
		asked  []string
	}{
		"not needed": {"sum by (pod) (x)", query.SampleTimesNotNeeded, timed, unknown, "", []string{"sum by (pod) (x)"}},
		"known": {"sum by (pod) (x)", query.SampleTimesIfKnown, timed, []query.Sample{
			at("a", 1, -9750*time.Millisecond, 9750*time.Millisecond), at("b", 2, 0, query.EndedAge), at("c", 3, 0, query.EndedAge), at("d", 4, 0, query.EndedAge), at("e", 5, 500*time.Millisecond, 0),
		}, "", []string{asked}},
		"not known":                           {"sum(absent(x))", query.SampleTimesIfKnown, timed, unknown, "", []string{"sum(absent(x))"}},
		"not known, but required":             {"sum(absent(x))", query.SampleTimesRequired, timed, nil, query.ReasonRejected, nil},
		"not PromQL":                          {"x keep_metric_names", query.SampleTimesIfKnown, timed, unknown, "", []string{"x keep_metric_names"}},
		"the server rejects it":               {"sum by (pod) (x)", query.SampleTimesIfKnown, rejects, unknown, "", []string{asked, "sum by (pod) (x)"}},
		"the server rejects what is required": {"sum by (pod) (x)", query.SampleTimesRequired, rejects, nil, query.ReasonRejected, []string{asked}},
		"the server breaks off":               {"sum by (pod) (x)", query.SampleTimesIfKnown, "{", nil, query.ReasonMalformed, []string{asked}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				expression := r.FormValue("query")
				got = append(got, expression)
				body := plain
				if strings.Contains(expression, "timestamp") {
					body = test.with
				}
				answers("application/json", body)(rw, r)
			}, nil)
			result, err := w.source.Evaluate(t.Context(), query.Query{Expression: test.expression, SampleTimes: test.times}, instant)
			failure, failed := errors.AsType[*query.Failure](err)
			if failed != (test.reason != "") || failed && failure.Reason != test.reason {
				t.Fatalf("error %v, want %s", err, test.reason)
			}
			if diff := cmp.Diff(test.asked, got); diff != "" {
				t.Errorf("asked (-want +got): %s", diff)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(test.want, result.Samples); diff != "" {
				t.Errorf("samples (-want +got): %s", diff)
			}
			if want := len(test.want) > 2; result.SampleTimes != want {
				t.Errorf("the samples have their own times: %t", result.SampleTimes)
			}
		})
	}
}

// An expression that failed with sample times is evaluated without for a while, unless they are required.
func TestSampleTimesAreGivenUp(t *testing.T) {
	tests := map[string]struct {
		with  string
		times query.SampleTimes
		// asked are the expressions of five evaluations, the last one after a while: with times or plain.
		asked string
	}{
		"rejected":           {`{"status":"error","errorType":"bad_data","error":"no"}`, query.SampleTimesIfKnown, "with plain plain plain plain with plain"},
		"not evaluated":      {`{"status":"error","errorType":"execution","error":"no"}`, query.SampleTimesIfKnown, "with plain plain plain plain with plain"},
		"too late":           {`{"status":"error","errorType":"timeout","error":"no"}`, query.SampleTimesIfKnown, "with plain plain plain with"},
		"malformed":          {`{`, query.SampleTimesIfKnown, "with plain plain plain with"},
		"partial":            {`{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}`, query.SampleTimesIfKnown, "with with with with with"},
		"rejected, required": {`{"status":"error","errorType":"bad_data","error":"no"}`, query.SampleTimesRequired, "with with with with with"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var asked []string
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				body, what := `{"status":"success","data":{"resultType":"vector","result":[]}}`, "plain"
				if strings.Contains(r.FormValue("query"), "timestamp") {
					body, what = test.with, "with"
				}
				asked = append(asked, what)
				answers("application/json", body)(rw, r)
			}, nil)
			for i := range 5 {
				if i == 4 {
					w.clock.Step(withoutTimesFor + time.Second)
				}
				_, _ = w.source.Evaluate(t.Context(), query.Query{Expression: "x", SampleTimes: test.times}, instant)
			}
			if got := strings.Join(asked, " "); got != test.asked {
				t.Errorf("asked %s, want %s", got, test.asked)
			}
		})
	}
}
