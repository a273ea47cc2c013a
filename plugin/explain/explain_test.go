// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

var now = time.Date(2026, 1, 2, 3, 4, 10, 0, time.UTC)

// world is kube-apiserver with the metrics APIs behind it.
type world struct {
	// resources are what discovery names, by group and version.
	resources map[string][]metav1.APIResource
	// answers are by path, without /apis.
	answers map[string]any
	codes   map[string]int
	// missing is the message of a 404.
	missing string
	asked   []string
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/apis/")
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("Date", now.Format(http.TimeFormat))
	var body any
	resources, discovered := w.resources[path]
	answer, answered := w.answers[path]
	switch {
	case w.codes[path] != 0:
		rw.WriteHeader(w.codes[path])
		body = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: int32(w.codes[path]), Reason: map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 503: metav1.StatusReasonServiceUnavailable}[w.codes[path]], Message: "refused"}
	case discovered:
		body = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, APIResources: resources}
	case answered:
		w.asked = append(w.asked, path+"?"+r.URL.RawQuery)
		body = answer
	case w.missing != "":
		rw.WriteHeader(http.StatusNotFound)
		body = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: w.missing}
	default:
		http.NotFound(rw, r)
		return
	}
	_ = json.NewEncoder(rw).Encode(body)
}

func explanation(change func(*v1alpha1.MetricExplanation)) v1alpha1.MetricExplanation {
	e := v1alpha1.MetricExplanation{
		TypeMeta: metav1.TypeMeta{Kind: v1alpha1.KindMetricExplanation, APIVersion: v1alpha1.GroupVersion.String()},
		Origin:   "spec.customMetrics.rules[2]", Source: "prometheus",
		Query:    `sum(rate(hits_total{namespace="shop"}[2m])) by (pod)`,
		Interval: metav1.Duration{Duration: 15 * time.Second}, ObjectLabel: "pod",
		Evaluated: metav1.NewMicroTime(now.Add(-4 * time.Second)), Window: metav1.Duration{Duration: 2 * time.Minute},
	}
	change(&e)
	return e
}

func healthy(e *v1alpha1.MetricExplanation) {
	e.Series = []v1alpha1.ExplainedSeries{
		{Labels: map[string]string{"pod": "cart-1"}, Value: "12.5"},
		{Labels: map[string]string{"pod": "cart-2", "code": "\x1b[31m"}, Value: "NaN"},
	}
	e.SeriesCount, e.OtherSeries = 102, 7
	e.Values = []v1alpha1.ExplainedValue{{Object: "cart-1", Value: "12500m", Time: metav1.NewTime(now.Add(-4 * time.Second))}}
	e.ValueCount = 1
	e.Omitted = []v1alpha1.ExplainedOmission{{Object: "cart-2", Reason: "NaN", Message: "the value is no number"}}
	e.Warnings = []string{"partial response: a store is away"}
}

func down(e *v1alpha1.MetricExplanation) {
	e.Evaluated, e.Window = metav1.MicroTime{}, metav1.Duration{}
	e.Failure = &v1alpha1.ExplainedFailure{Reason: "Timeout", Message: "no answer within 10s"}
}

func fallback(e *v1alpha1.MetricExplanation) {
	down(e)
	e.Origin, e.ObjectLabel, e.Object = "CustomMetric shop/latency", "", "main"
	e.Fallback = true
	e.Values, e.ValueCount = []v1alpha1.ExplainedValue{{Object: "main", Value: "3", Time: metav1.NewTime(now)}}, 1
}

func external(e *v1alpha1.MetricExplanation) {
	e.Origin, e.ObjectLabel = "spec.externalMetrics.rules[0]", ""
	e.Query, e.Window = `sum(queue_depth) by (queue)`, metav1.Duration{}
	e.Series = []v1alpha1.ExplainedSeries{{Labels: map[string]string{"queue": "a,b"}, Value: "17"}}
	e.Values = []v1alpha1.ExplainedValue{{Labels: map[string]string{"queue": "a,b"}, Value: "17", Time: metav1.NewTime(now)}}
	e.SeriesCount, e.ValueCount = 1, 1
}

func notWhole(e *v1alpha1.MetricExplanation) {
	external(e)
	e.Series, e.SeriesCount = append(e.Series, v1alpha1.ExplainedSeries{Labels: map[string]string{"queue": "c"}, Value: "+Inf"}), 2
	e.Values, e.ValueCount = nil, 0
	e.Omitted = []v1alpha1.ExplainedOmission{{Labels: map[string]string{"queue": "c"}, Reason: "Infinite", Message: "the value is infinite"}}
}

const (
	custom = "custom.metrics.k8s.io/v1beta2"
	ext    = "external.metrics.k8s.io/v1beta1"
)

// run returns as errs what is on the error stream, and the command's error.
func run(t *testing.T, w *world, args ...string) (code int, out, errs string) {
	t.Helper()
	server := httptest.NewServer(w)
	defer server.Close()
	return runAt(t, server, args...)
}

func runAt(t *testing.T, server *httptest.Server, args ...string) (code int, out, errs string) {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	flags.APIServer, flags.Namespace = ptr.To(server.URL), nil
	t.Setenv("KUBECONFIG", "/dev/null")
	var stdout, stderr bytes.Buffer
	cmd := NewCommand(flags, genericiooptions.IOStreams{Out: &stdout, ErrOut: &stderr})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if err != nil {
		stderr.WriteString(err.Error())
	}
	return output.ExitCode(err), stdout.String(), strings.ReplaceAll(stderr.String(), server.URL, "")
}

func TestExplainMetric(t *testing.T) {
	both := map[string][]metav1.APIResource{
		custom: {{Name: "pods/hits", Namespaced: true}, {Name: "nodes/load"}, {Name: "namespaces/depth"}},
		ext:    {{Name: `mail\|queue`, Namespaced: true}, {Name: "hits", Namespaced: true}},
	}
	for name, test := range map[string]struct {
		args    []string
		answers map[string]any
		code    int
		asked   []string
	}{
		"discovered": {
			args: []string{"hits", "-n", "shop"},
			answers: map[string]any{
				custom + "/namespaces/shop/pods/*/hits": explanation(healthy),
				ext + "/namespaces/shop/hits":           explanation(external),
			},
			asked: []string{custom + "/namespaces/shop/pods/*/hits?explain=true", ext + "/namespaces/shop/hits?explain=true"},
		},
		"pods-by-selectors": {
			args:    []string{"hits", "--for=pods", "-l", "app=cart", "--metric-selector", "code=200", "-o", "yaml"},
			answers: map[string]any{custom + "/namespaces/default/pods/*/hits": explanation(healthy)},
			asked:   []string{custom + "/namespaces/default/pods/*/hits?explain=true&labelSelector=app%3Dcart&metricLabelSelector=code%3D200"},
		},
		"source-is-down": {
			args:    []string{"hits", "--for=pods/cart-1"},
			answers: map[string]any{custom + "/namespaces/default/pods/cart-1/hits": explanation(down)},
			code:    output.NotMet,
			asked:   []string{custom + "/namespaces/default/pods/cart-1/hits?explain=true"},
		},
		"fallback": {
			args:    []string{"latency", "--for=ingresses.networking.k8s.io/main"},
			answers: map[string]any{custom + "/namespaces/default/ingresses.networking.k8s.io/main/latency": explanation(fallback)},
			asked:   []string{custom + "/namespaces/default/ingresses.networking.k8s.io/main/latency?explain=true"},
		},
		"no-series": {
			args:    []string{"load", "-o", "text"},
			answers: map[string]any{custom + "/nodes/*/load": explanation(func(*v1alpha1.MetricExplanation) {})},
			code:    output.NotMet,
			asked:   []string{custom + "/nodes/*/load?explain=true"},
		},
		"namespace": {
			args:    []string{"depth", "-n", "shop", "-o", "json"},
			answers: map[string]any{custom + "/namespaces/shop/metrics/depth": explanation(external)},
			asked:   []string{custom + "/namespaces/shop/metrics/depth?explain=true"},
		},
		"external-not-whole": {
			args:    []string{"depth", "--external"},
			answers: map[string]any{ext + "/namespaces/default/depth": explanation(notWhole)},
			code:    output.NotMet,
			asked:   []string{ext + "/namespaces/default/depth?explain=true"},
		},
		"external-no-series": {
			args: []string{"depth", "--external"},
			answers: map[string]any{ext + "/namespaces/default/depth": explanation(func(e *v1alpha1.MetricExplanation) {
				e.ObjectLabel, e.Omitted = "", []v1alpha1.ExplainedOmission{{Reason: "NoSeries", Message: "the source answers no series to the query"}}
			})},
			code:  output.NotMet,
			asked: []string{ext + "/namespaces/default/depth?explain=true"},
		},
		"external-with-a-slash": {
			args:    []string{"mail/queue", "--external", "-l", "queue=a"},
			answers: map[string]any{ext + `/namespaces/default/mail\|queue`: explanation(external)},
			asked:   []string{ext + `/namespaces/default/mail\|queue?explain=true&labelSelector=queue%3Da`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{resources: both, answers: test.answers}
			code, out, errs := run(t, w, test.args...)
			if code != test.code || (errs != "" && errs != output.ErrNotMet.Error()) {
				t.Fatalf("exit code %d, want %d: %s", code, test.code, errs)
			}
			if diff := cmp.Diff(test.asked, w.asked); diff != "" {
				t.Error(diff)
			}
			plugincluster.Golden(t, name+".txt", out)
		})
	}
}

// What cannot be asked hides nothing of what can, and is told after it.
func TestExplainMetricPartly(t *testing.T) {
	const (
		pods     = custom + "/namespaces/default/pods/*/hits"
		services = custom + "/namespaces/default/services/*/hits"
		others   = ext + "/namespaces/default/hits"
	)
	objects := []metav1.APIResource{{Name: "pods/hits", Namespaced: true}, {Name: "services/hits", Namespaced: true}}
	queues := []metav1.APIResource{{Name: "hits", Namespaced: true}}
	for name, test := range map[string]struct {
		world world
		code  int
		// paths are of what is explained, and errs what is said of the rest.
		paths, errs []string
	}{
		"one is forbidden": {
			world: world{
				resources: map[string][]metav1.APIResource{custom: objects, ext: queues},
				answers:   map[string]any{services: explanation(healthy), others: explanation(external)},
				codes:     map[string]int{pods: 403},
			},
			paths: []string{"/apis/" + services, "/apis/" + others},
			errs:  []string{"error: explain metric hits of pods in namespace default: GET /apis/" + pods + "?explain=true: refused"},
		},
		"the others have no values": {
			world: world{
				resources: map[string][]metav1.APIResource{custom: objects, ext: nil},
				answers:   map[string]any{pods: explanation(down)},
				codes:     map[string]int{services: 403},
			},
			code:  output.NotMet,
			paths: []string{"/apis/" + pods},
			errs:  []string{"error: explain metric hits of services in namespace default: GET /apis/" + services + "?explain=true: refused", output.ErrNotMet.Error()},
		},
		"no discovery of external metrics": {
			world: world{
				resources: map[string][]metav1.APIResource{custom: objects[:1]},
				answers:   map[string]any{pods: explanation(healthy)},
				codes:     map[string]int{ext: 503},
			},
			paths: []string{"/apis/" + pods},
			errs:  []string{"error: GET /apis/" + ext + ": refused"},
		},
		"no discovery of metrics of objects": {
			world: world{
				resources: map[string][]metav1.APIResource{ext: queues},
				answers:   map[string]any{others: explanation(external)},
				codes:     map[string]int{custom: 403},
			},
			paths: []string{"/apis/" + others},
			errs:  []string{"error: GET /apis/" + custom + ": refused"},
		},
		"all are forbidden": {
			world: world{
				resources: map[string][]metav1.APIResource{custom: objects},
				codes:     map[string]int{pods: 403, services: 403},
			},
			code: output.NotRun,
			errs: []string{
				"explain metric hits of pods in namespace default: GET /apis/" + pods + "?explain=true: refused",
				"explain metric hits of services in namespace default: GET /apis/" + services + "?explain=true: refused",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := run(t, &test.world, "hits", "-o", "json")
			var explained []Explained
			if out != "" {
				if err := json.Unmarshal([]byte(out), &explained); err != nil {
					t.Errorf("the output is no JSON: %v", err)
				}
			}
			var paths []string
			for i := range explained {
				paths = append(paths, explained[i].Path)
			}
			if diff := cmp.Diff(test.paths, paths); diff != "" || code != test.code {
				t.Errorf("exit code %d, want %d; explained (-want +got):\n%s", code, test.code, diff)
			}
			if diff := cmp.Diff(test.errs, strings.Split(strings.TrimSpace(errs), "\n")); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExplainMetricUndiscovered: discovery is bounded, so a metric that it does not name is asked for.
func TestExplainMetricUndiscovered(t *testing.T) {
	w := &world{
		resources: map[string][]metav1.APIResource{custom: nil, ext: nil}, missing: "no rule makes it",
		answers: map[string]any{custom + "/namespaces/default/pods/*/hits": explanation(healthy)},
	}
	code, out, errs := run(t, w, "hits")
	if code != output.OK || !strings.Contains(out, "metric hits of pods") || !strings.Contains(errs, "no rule makes it") || strings.Contains(errs, "is in discovery") {
		t.Errorf("exit code %d, errors %s\n%s", code, errs, out)
	}
}

func TestExplainMetricCannot(t *testing.T) {
	both := map[string][]metav1.APIResource{custom: {{Name: "pods/hits", Namespaced: true}}, ext: nil}
	list := map[string]any{"kind": "MetricValueList", "items": []any{}}
	for name, test := range map[string]struct {
		world world
		args  []string
		want  string
	}{
		"another implementation": {
			world: world{resources: map[string][]metav1.APIResource{"custom.metrics.k8s.io/v1beta1": both[custom], ext: nil},
				answers: map[string]any{"custom.metrics.k8s.io/v1beta1/namespaces/default/pods/*/hits": list}},
			args: []string{"hits"}, want: "does not explain: it answered a MetricValueList",
		},
		"no such metric": {world: world{resources: both}, args: []string{"misses"}, want: `no metric "misses" is in discovery`},
		"no such metric, which a rule was to make": {
			world: world{resources: both, missing: "no rule and no CustomMetric makes the metric; without metrics because of errors: spec.customMetrics.rules[1] (InvalidSeriesQuery)"},
			args:  []string{"misses"}, want: "explain metric misses of pods in namespace default: GET /apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/misses?explain=true: no rule and no CustomMetric makes the metric; without metrics because of errors: spec.customMetrics.rules[1] (InvalidSeriesQuery)",
		},
		"no such metric, external": {
			world: world{resources: both, missing: "without metrics because of errors"},
			args:  []string{"misses"}, want: "explain external metric misses in namespace default: GET /apis/external.metrics.k8s.io/v1beta1/namespaces/default/misses?explain=true: without metrics because of errors",
		},
		"no API of objects":    {world: world{}, args: []string{"hits", "--for=pods"}, want: "custom.metrics.k8s.io is not served"},
		"no API of others":     {world: world{resources: map[string][]metav1.APIResource{custom: nil}}, args: []string{"hits", "--external"}, want: "external.metrics.k8s.io is not served"},
		"unavailable":          {world: world{codes: map[string]int{custom: 503}}, args: []string{"hits"}, want: "/apis/custom.metrics.k8s.io/v1beta2: refused"},
		"unavailable external": {world: world{resources: map[string][]metav1.APIResource{custom: nil}, codes: map[string]int{ext: 503}}, args: []string{"hits"}, want: "/apis/external.metrics.k8s.io/v1beta1: refused"},
		"forbidden": {world: world{resources: both, codes: map[string]int{custom + "/namespaces/default/pods/*/hits": 403}}, args: []string{"hits"},
			want: "refused"},
		"not there":             {world: world{resources: both}, args: []string{"hits"}, want: "/namespaces/default/pods/*/hits"},
		"no JSON":               {world: world{resources: both, answers: map[string]any{custom + "/namespaces/default/pods/*/hits": "x"}}, args: []string{"hits"}, want: "read the explanation of"},
		"two metrics":           {args: []string{"hits", "misses"}, want: "name one metric; there are 2"},
		"no object's name":      {args: []string{"hits", "--for=pods/"}, want: "--for \"pods/\": must be RESOURCE or RESOURCE/NAME"},
		"a path":                {args: []string{"hits", "--for=shop/pods/web"}, want: "--for \"shop/pods/web\": must be"},
		"no resource":           {args: []string{"hits", "--for=/web"}, want: "--for \"/web\": must be"},
		"another namespace":     {args: []string{"hits", "--for=namespaces/other", "-n", "shop"}, want: "which is shop here: add -n other"},
		"both kinds":            {args: []string{"hits", "--external", "--for=pods"}, want: "describes no object"},
		"one object of several": {args: []string{"hits", "--for=pods/web", "-l", "app=x"}, want: "leave out the name, or --selector"},
		"a wrong selector":      {args: []string{"hits", "--external", "--metric-selector=a=b"}, want: "leave out --metric-selector"},
		"no selector":           {args: []string{"hits", "-l", "a=b=c"}, want: `--selector "a=b=c"`},
		"an unknown format":     {args: []string{"hits", "-o", "xml"}, want: `--output "xml"`},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := run(t, &test.world, test.args...)
			if code != output.NotRun || out != "" || !strings.Contains(errs, test.want) {
				t.Errorf("exit code %d, error %q, want one with %q\n%s", code, errs, test.want, out)
			}
		})
	}
}
