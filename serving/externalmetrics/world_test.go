// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics/policy"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
	"github.com/metricsbackend/metrics-backend-operator/test/apiserver"
	"github.com/metricsbackend/metrics-backend-operator/test/pipes"
)

// t0 is the time of the tests' samples.
var t0 = time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC)

// fakeMetrics are metrics by name, in the namespaces that have them; a nil slice is all.
type fakeMetrics map[string][]string

// falling adds a fallback to all that is read.
type falling struct {
	fakeMetrics
	back *atomic.Pointer[query.Fallback]
}

func (f falling) ExternalQuery(r query.ExternalRequest) (query.MetricQuery, error) {
	mq, err := f.fakeMetrics.ExternalQuery(r)
	mq.Fallback = f.back.Load()
	return mq, err
}

func (f fakeMetrics) ExternalMetrics(most int) (first []string, total int) {
	var names []string
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	return names[:min(len(names), most)], len(names)
}

func (f fakeMetrics) ExternalName(namespace, requested string) string {
	var alike []string
	for name, namespaces := range f {
		if there := namespaces == nil || slices.Contains(namespaces, namespace); there && name == requested {
			return requested
		} else if there && strings.EqualFold(name, requested) {
			alike = append(alike, name)
		}
	}
	if len(alike) == 1 {
		return alike[0]
	}
	return requested
}

func (f fakeMetrics) ExternalQuery(r query.ExternalRequest) (query.MetricQuery, error) {
	namespaces, ok := f[r.Metric]
	if !ok || namespaces != nil && !slices.Contains(namespaces, r.Namespace) {
		return query.MetricQuery{}, apierrors.NewNotFound(external_metrics.Resource(r.Metric), "")
	}
	mq := query.MetricQuery{
		Query:  query.Query{Source: "main", Expression: r.Metric, Interval: time.Hour},
		Origin: "spec.externalMetrics.rules[0]", Select: r.Series,
	}
	if strings.HasPrefix(r.Metric, "rate") {
		mq.Window = 2 * time.Minute
	}
	mq.OmitInvalid = strings.HasPrefix(r.Metric, "rest")
	return mq, nil
}

// fakeSource answers by expression.
type fakeSource struct {
	mu      sync.Mutex
	answers map[string][]query.Sample
	failure error
	// warnings are those of all answers.
	warnings []string
}

func (f *fakeSource) Evaluate(_ context.Context, q query.Query, _ time.Time) (*query.Result, error) {
	expression := q.Expression
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure != nil {
		return nil, f.failure
	}
	return &query.Result{Time: t0, Samples: f.answers[expression], Warnings: f.warnings}, nil
}

func sample(value float64, of labels.Set) query.Sample {
	return query.Sample{Labels: of, Value: value, Time: t0.Add(-time.Second)}
}

// world is external.metrics.k8s.io in a generic API server of its own.
type world struct {
	t testing.TB
	// handler is reached through network, so that a synctest bubble can hold both.
	handler  http.Handler
	network  *pipes.Network
	metrics  fakeMetrics
	fallback atomic.Pointer[query.Fallback]
	source   *fakeSource
	// served returns the metrics that are served, of those with the fallback.
	served   func(falling) query.ExternalMetrics
	policies *Policies
	group    *valueapi.Group
}

func newWorld(t testing.TB, change ...func(*world)) *world {
	t.Helper()
	w := &world{
		t: t, metrics: fakeMetrics{}, source: &fakeSource{answers: map[string][]query.Sample{}}, policies: NewPolicies(),
		served: func(f falling) query.ExternalMetrics { return f },
	}
	w.policies.Apply(&policy.Set{})
	w.add("queue_length", sample(3.5, labels.Set{"queue": "a", "region": "eu"}), sample(7, labels.Set{"queue": "b", "region": "eu"}), sample(9, labels.Set{"queue": "b", "region": "us"}))
	for _, f := range change {
		f(w)
	}

	server := apiserver.New(t, Scheme, apiserver.Definitions(resourcemetrics.GetOpenAPIDefinitions, OpenAPIDefinitions), func(config *genericapiserver.Config) {
		config.Authentication.Authenticator = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			name := cmp.Or(r.Header.Get("X-Test-User"), "admin")
			return &authenticator.Response{User: &user.DefaultInfo{Name: name, Groups: r.Header.Values("X-Test-Group")}}, true, nil
		})
		config.RequestInfoResolver = NewRequestInfoResolver(valueapi.NewRequestInfoResolver(genericapiserver.NewRequestInfoResolver(config), GroupName))
		config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
			return stream.WithRequestMetadata(genericapiserver.DefaultBuildHandlerChain(handler, c))
		}
	})
	random := func() float64 { return 0.5 }
	evaluator := query.NewEvaluator(clock.RealClock{}, random, func(name string) (query.Source, bool) { return w.source, name == "main" || name == "keda" }, 200)
	var err error
	w.group, err = InstallAPI(server, Options{
		Metrics: w.served(falling{w.metrics, &w.fallback}), Policies: w.policies,
		Options: valueapi.Options{
			Enabled:           func(schema.GroupVersion) bool { return true },
			Querier:           evaluator,
			Quota:             stream.NewQuota(clock.RealClock{}, random, stream.Limits{Connections: 100, PerUser: 10, OpensPerSecond: 100, OpensBurst: 100}),
			Settings:          stream.Settings{BookmarkInterval: time.Hour, MaxAge: time.Hour},
			Clock:             clock.RealClock{},
			Random:            random,
			MinRequestTimeout: time.Hour,
		},
	})
	if err != nil {
		t.Fatalf("install the API group: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.group.Run(ctx) })
	running.Go(func() { evaluator.Run(ctx) })
	server.PrepareRun()
	w.handler, w.network = server.Handler, pipes.New()
	over := &http.Server{Handler: w.handler, ReadHeaderTimeout: time.Minute}
	running.Go(func() { _ = over.Serve(w.network) })
	t.Cleanup(func() {
		_ = over.Close()
		cancel()
		running.Wait()
	})
	return w
}

// add gives a metric to all namespaces.
func (w *world) add(metric string, samples ...query.Sample) {
	w.metrics[metric] = nil
	w.source.answers[metric] = samples
}

func (w *world) fail(message string) {
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	w.source.failure = &query.Failure{Source: "main", Reason: query.ReasonBadStatus, Message: message}
}

// apply puts policies in force.
func (w *world) apply(set *policy.Set, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	w.policies.Apply(set)
}

// serverURL is the API server's, in its own network.
const serverURL = "http://external.test"

// path is that of a metric in the namespace shop; it holds what a URL may not.
func path(metric, query string) string {
	return "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/" + metric + query
}

// do sends a request, with headers as pairs.
func (w *world) do(method, path string, headers ...string) *http.Response {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), method, serverURL+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := w.network.Client().Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// get returns the code and the body of an answer.
func (w *world) get(path string, headers ...string) (int, string) {
	w.t.Helper()
	return w.read(w.do(http.MethodGet, path, headers...)) //nolint:bodyclose // do has it closed at the end.
}

func (w *world) read(response *http.Response) (int, string) {
	w.t.Helper()
	body, err := io.ReadAll(response.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		w.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
