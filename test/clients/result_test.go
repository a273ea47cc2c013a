// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

// reads makes one read a second, which takes 100 ms, from second 0: 1 lists both
// versions, b lists v1beta1 alone, s lists v1 as stale, e is an error.
func reads(states string) []Read {
	var all []Read
	for i, state := range states {
		read := Read{Began: at(float64(i)), Ended: at(float64(i) + 0.1)}
		switch state {
		case '1':
			read.Current = []string{"v1", "v1beta1"}
		case 'b':
			read.Current = []string{"v1beta1"}
		case 's':
			read.Current, read.Stale = []string{"v1beta1"}, []string{"v1"}
		case 'e':
			read.Err = "unavailable"
		}
		all = append(all, read)
	}
	return all
}

func request(version string, began float64, code int) Request {
	return Request{Client: "client", Version: version, Path: "/" + version, Began: at(began), Ended: at(began + 0.05), Code: code}
}

func TestJudgeRequests(t *testing.T) {
	always, gone := strings.Repeat("1", 30), "111"+strings.Repeat("b", 27)
	cases := map[string]struct {
		reads    string
		request  Request
		failures int
		excused  int
	}{
		"answered":                             {always, request("v1", 2.5, 200), 0, 0},
		"not found although promised":          {always, request("v1", 2.5, 404), 1, 0},
		"not found and then gone":              {gone, request("v1", 2.5, 404), 0, 1},
		"not found and then stale":             {"111" + strings.Repeat("s", 27), request("v1", 2.5, 404), 0, 1},
		"gone for less than 15 s":              {"111" + strings.Repeat("b", 14) + strings.Repeat("1", 13), request("v1", 2.5, 404), 1, 0},
		"back 15 s later, not listed before":   {strings.Repeat("b", 10) + strings.Repeat("1", 20), request("v1", 9.5, 404), 0, 1},
		"a read that had not ended":            {"bb1" + strings.Repeat("1", 27), request("v1", 2.05, 404), 0, 1},
		"a read that had just ended":           {"bb1" + strings.Repeat("1", 27), request("v1", 2.15, 404), 1, 0},
		"failed reads say nothing":             {"11e" + strings.Repeat("1", 15) + "ee" + strings.Repeat("b", 10), request("v1", 2.5, 404), 0, 1},
		"nothing is known of later":            {"1111", request("v1", 2.5, 404), 1, 0},
		"unavailable is never excused":         {gone, request("v1", 2.5, 503), 1, 0},
		"no answer is never excused":           {gone, request("v1", 2.5, 0), 1, 0},
		"too many requests is a failure":       {gone, request("v1", 2.5, 429), 1, 0},
		"v1beta1 not found is never excused":   {gone, request("v1beta1", 2.5, 404), 1, 0},
		"before the first read there was none": {"1" + always, request("v1", -5, 404), 0, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Result{Reads: reads(tc.reads)}
			r.judgeRequests([]Request{tc.request})
			if len(r.Failures) != tc.failures || r.Excused != tc.excused {
				t.Errorf("%d failures, %d excused, want %d and %d: %v", len(r.Failures), r.Excused, tc.failures, tc.excused, r.Failures)
			}
		})
	}
}

func TestJudgeReads(t *testing.T) {
	cases := map[string]struct {
		reads []Read
		want  []string
	}{
		"v1 may come, go and be stale": {reads("11bbs1"), nil},
		"failed":                       {reads("1e"), []string{"discovery at 12:00:01.000: unavailable"}},
		"v1beta1 is missing":           {[]Read{{Began: at(3), Current: []string{"v1"}}}, []string{"discovery at 12:00:03.000: v1beta1 is not current; current: [v1], stale: []"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Result{Reads: tc.reads}
			r.judgeReads()
			if diff := cmp.Diff(tc.want, r.Failures); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
		})
	}
}

const (
	quiet = `# HELP aggregator_unavailable_apiservice_total Counter.
# TYPE aggregator_unavailable_apiservice_total counter
aggregator_unavailable_apiservice_total{name="v1.metrics.k8s.io",reason="MissingEndpoints"} 1
# TYPE apiserver_request_terminations_total counter
apiserver_request_terminations_total{code="503",component="aggregator",group="",resource="",subresource="/apis"} 14
apiserver_request_terminations_total{code="503",component="apiserver",group="",resource=""} 3
# TYPE go_goroutines gauge
go_goroutines 7
# TYPE horizontal_pod_autoscaler_controller_metric_computation_total counter
horizontal_pod_autoscaler_controller_metric_computation_total{action="none",error="none",metric_type="Resource"} 10
# TYPE horizontal_pod_autoscaler_controller_metric_computation_duration_seconds histogram
horizontal_pod_autoscaler_controller_metric_computation_duration_seconds_bucket{action="none",error="none",le="+Inf"} 10
horizontal_pod_autoscaler_controller_metric_computation_duration_seconds_sum{action="none",error="none"} 0.1
horizontal_pod_autoscaler_controller_metric_computation_duration_seconds_count{action="none",error="none"} 10
`
	noticed = `# TYPE apiserver_request_terminations_total counter
apiserver_request_terminations_total{code="503",component="aggregator",group="",resource="",subresource="/apis"} 14
apiserver_request_terminations_total{code="503",component="aggregator",group="metrics.k8s.io",resource="nodes"} 2
apiserver_request_terminations_total{code="503",component="apiserver",group="",resource=""} 9
# TYPE aggregator_unavailable_apiservice_total counter
aggregator_unavailable_apiservice_total{name="v1.metrics.k8s.io",reason="MissingEndpoints"} 1
aggregator_unavailable_apiservice_total{name="v1.metrics.k8s.io",reason="ServiceNotFound"} 1
# TYPE horizontal_pod_autoscaler_controller_metric_computation_total counter
horizontal_pod_autoscaler_controller_metric_computation_total{action="none",error="none",metric_type="Resource"} 15
horizontal_pod_autoscaler_controller_metric_computation_total{action="none",error="internal",metric_type="Resource"} 3
# TYPE horizontal_pod_autoscaler_controller_metric_computation_duration_seconds histogram
horizontal_pod_autoscaler_controller_metric_computation_duration_seconds_bucket{action="none",error="none",le="+Inf"} 15
horizontal_pod_autoscaler_controller_metric_computation_duration_seconds_sum{action="none",error="none"} 0.2
horizontal_pod_autoscaler_controller_metric_computation_duration_seconds_count{action="none",error="none"} 15
`
)

func TestJudgeFigures(t *testing.T) {
	cases := map[string]struct {
		before, after string
		registered    int
		want          []string
	}{
		"nobody noticed":                       {quiet, quiet, 0, nil},
		"the aggregator's own, one registered": {quiet, strings.ReplaceAll(quiet, `resource="",subresource="/apis"} 14`, `resource="",subresource="/apis"} 15`), 1, nil},
		"the aggregator's own, thrice for one registered": {quiet, strings.ReplaceAll(quiet, `resource="",subresource="/apis"} 14`, `resource="",subresource="/apis"} 17`), 1, []string{
			`apiserver_request_terminations_total{component="aggregator"}: +0, and +3 of its own discovery; 1 APIServices were created`,
		}},
		"the aggregator's own, none registered": {quiet, strings.ReplaceAll(quiet, `resource="",subresource="/apis"} 14`, `resource="",subresource="/apis"} 15`), 0, []string{
			`apiserver_request_terminations_total{component="aggregator"}: +0, and +1 of its own discovery; 0 APIServices were created`,
		}},
		"all noticed": {quiet, noticed, 1, []string{
			`apiserver_request_terminations_total{component="aggregator"}: +2, and +0 of its own discovery; 1 APIServices were created`,
			`aggregator_unavailable_apiservice_total{name="v1.metrics.k8s.io"}: +1`,
			`horizontal_pod_autoscaler_controller_metric_computation_total{error="internal",metric_type="Resource"}: +3`,
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Result{Registered: tc.registered}
			r.judgeFigures(figuresOf(t, tc.before), figuresOf(t, tc.after))
			if diff := cmp.Diff(tc.want, r.Failures); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
			if got := strings.Join(r.Figures, "\n"); !strings.Contains(got, "mean") {
				t.Errorf("the report does not tell the time of computations:\n%s", got)
			}
		})
	}
}

func figuresOf(t *testing.T, text string) figures {
	t.Helper()
	parsed, err := parse(strings.NewReader(text), unavailable, unavailableTotal, terminations, computations, computationTime)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := parsed["go_goroutines"]; ok {
		t.Error("a family that nobody asked for was parsed")
	}
	return parsed
}

func TestReport(t *testing.T) {
	r := &Result{Reads: reads("11bb11s"), began: at(0), ended: at(7), Namespaces: []time.Duration{time.Second, 3 * time.Second, 2 * time.Second}}
	r.judgeRequests([]Request{request("v1", 1.5, 200), request("v1", 1.6, 404), request("v1beta1", 1.7, 503)})
	for i := range maxShown {
		r.fail("failure %d", i)
	}
	got := r.String()
	for _, want := range []string{
		"clients, 7s: 3 requests, slowest 50ms, 22 failures", "client, v1                       200: 1 404: 1",
		"v1 left it 2 times", "12:00:02.000 v1beta1\n", "12:00:06.000 v1beta1 (v1 stale)",
		"gone after 2s (median), 3s (slowest)", "FAILURE: client client at 12:00:01.600", "… and 2 failures more",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}
