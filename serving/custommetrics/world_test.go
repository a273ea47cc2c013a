// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
	"github.com/metricsbackend/metrics-backend-operator/test/apiserver"
)

// t0 is the instant of the first samples, with a fraction that no answer shows.
var t0 = time.Date(2026, 8, 30, 12, 0, 0, 250_000_000, time.UTC)

// world is what the API group is made of: metrics, objects and a source in memory,
// and the real evaluator between them.
type world struct {
	mu      sync.Mutex
	metrics map[string]query.ObjectMetric
	// objects by resource and namespace; labels by name.
	objects map[string]map[string]labels.Set
	samples map[string][]query.Sample
	window  time.Duration
	failure error
	// duplicates and omitInvalid are those of each MetricQuery.
	duplicates  v1alpha1.DuplicatesPolicy
	omitInvalid bool
	// asked counts evaluations by expression.
	asked map[string]int
	// listed counts the times that objects were looked up.
	listed int
	// warnings are those of all answers.
	warnings []string
	// read is the newest request to ObjectQuery.
	read query.ObjectRequest
}

var (
	podKind     = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	ingressKind = schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}
	nodeKind    = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	spaceKind   = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
)

// newWorld has two web pods and a database in namespace shop, an ingress, nodes, and
// two namespaces, each with a metric.
func newWorld() *world {
	w := &world{
		metrics: map[string]query.ObjectMetric{}, objects: map[string]map[string]labels.Set{},
		samples: map[string][]query.Sample{}, asked: map[string]int{}, window: 2 * time.Minute,
	}
	w.metric("pods", podKind, true, "hits")
	w.metric("pods", podKind, true, "http.requests:rate5m")
	w.metric("ingresses.networking.k8s.io", ingressKind, true, "hits")
	w.metric("nodes", nodeKind, false, "load")
	w.metric("namespaces", spaceKind, false, "queue-length")
	w.object("pods", "shop", "web-1", "app=web")
	w.object("pods", "shop", "web-2", "app=web")
	w.object("pods", "shop", "db-1", "app=db")
	w.object("ingresses.networking.k8s.io", "shop", "front", "app=web")
	w.object("nodes", "", "node-a", "zone=x")
	w.object("namespaces", "", "shop", "team=a")
	w.object("namespaces", "", "bank", "team=b")
	w.sample("pods/hits", "web-1", 0.5, 0)
	w.sample("pods/hits", "web-2", 1500, time.Second)
	w.sample("pods/hits", "db-1", 7, 0)
	w.sample("pods/hits", "gone-1", 9, 0)
	w.sample("pods/http.requests:rate5m", "web-1", 3, 0)
	w.sample("ingresses.networking.k8s.io/hits", "front", 10, 0)
	w.sample("nodes/load", "node-a", 2, 0)
	w.sample("namespaces/queue-length", "shop", 42, 0)
	w.sample("namespaces/queue-length", "bank", 43, 0)
	return w
}

func (w *world) metric(resource string, kind schema.GroupVersionKind, namespaced bool, name string) {
	w.metrics[resource+"/"+name] = query.ObjectMetric{Resource: schema.ParseGroupResource(resource), Kind: kind, Namespaced: namespaced, Name: name}
}

func (w *world) object(resource, namespace, name, with string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set, err := labels.ConvertSelectorToLabelsMap(with)
	if err != nil {
		panic(err)
	}
	key := resource + " " + namespace
	if w.objects[key] == nil {
		w.objects[key] = map[string]labels.Set{}
	}
	w.objects[key][name] = set
}

func (w *world) sample(metric, object string, value float64, offset time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.samples[metric] = append(slices.Clone(w.samples[metric]), query.Sample{
		Labels: map[string]string{"object": object, "code": "200"}, Value: value, Time: t0.Add(offset),
	})
}

// replace sets the one sample of an object.
func (w *world) replace(metric, object string, value float64, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	samples := slices.Clone(w.samples[metric])
	for i := range samples {
		if samples[i].Labels["object"] == object {
			samples[i] = query.Sample{Labels: samples[i].Labels, Value: value, Time: at}
		}
	}
	w.samples[metric] = samples
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failure = err
}

// ObjectMetrics implements query.ObjectMetrics.
func (w *world) ObjectMetrics(most int) (first []query.ObjectMetric, total int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []query.ObjectMetric
	for _, key := range slices.Sorted(maps.Keys(w.metrics)) {
		all = append(all, w.metrics[key])
	}
	return all[:min(len(all), most)], len(all)
}

// ObjectQuery implements query.ObjectMetrics: with one query for all objects of a
// metric, whoever is asked for.
func (w *world) ObjectQuery(r query.ObjectRequest) (query.MetricQuery, query.ObjectMetric, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.read = r
	if r.Resource == (schema.GroupResource{Group: "extensions", Resource: "ingresses"}) {
		r.Resource.Group = "networking.k8s.io"
	}
	metric, known := w.metrics[r.Resource.String()+"/"+r.Metric]
	if !known {
		return query.MetricQuery{}, query.ObjectMetric{}, apierrors.NewNotFound(custom_metrics.Resource(r.Resource.String()), r.Metric)
	}
	expression := metric.Resource.String() + "/" + metric.Name
	if r.Series != nil {
		expression += "{" + r.Series.String() + "}"
	}
	return query.MetricQuery{
		Query:       query.Query{Source: "main", Expression: expression, Interval: 15 * time.Second},
		Origin:      "spec.customMetrics.rules[0]",
		Window:      w.window,
		ObjectLabel: "object",
		Duplicates:  w.duplicates,
		OmitInvalid: w.omitInvalid,
	}, metric, nil
}

// Evaluate implements query.Source.
func (w *world) Evaluate(_ context.Context, q query.Query, at time.Time) (*query.Result, error) {
	expression := q.Expression
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[expression]++
	if w.failure != nil {
		return nil, w.failure
	}
	return &query.Result{Time: at, Samples: w.samples[expression], Warnings: w.warnings}, nil
}

// Names implements Objects.
func (w *world) Names(_ context.Context, resource schema.GroupVersionResource, namespace string, selector labels.Selector) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listed++
	if resource.Resource == "forbidden" {
		return nil, apierrors.NewForbidden(resource.GroupResource(), "", errors.New("no right to list"))
	}
	names := []string{}
	for name, set := range w.objects[resource.GroupResource().String()+" "+namespace] {
		if selector.Matches(set) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Known implements Objects.
func (w *world) Known(resource schema.GroupVersionResource, namespace string, selector labels.Selector) ([]string, bool) {
	names, err := w.Names(context.Background(), resource, namespace, selector)
	return names, err == nil
}

var usualLimits = stream.Limits{Connections: 1000, PerUser: 1000, OpensPerSecond: 100, OpensBurst: 1000}

// served is an API server with the group.
type served struct {
	*httptest.Server
	group   *valueapi.Group
	quota   *stream.Quota
	generic *genericapiserver.GenericAPIServer
	// client is another than that of the Server; may be nil.
	client *http.Client
}

func (s *served) http() *http.Client {
	if s.client != nil {
		return s.client
	}
	return s.Client()
}

type serverConfig = genericapiserver.Config

// serve runs a real generic API server, under a real clock, on a real port.
func serve(t testing.TB, w *world, mutate ...func(*serverConfig, *Options)) *served {
	t.Helper()
	s := start(t, w, mutate...)
	s.Server = httptest.NewServer(s.generic.Handler)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// start makes the API server, without a port.
func start(t testing.TB, w *world, mutate ...func(*serverConfig, *Options)) *served {
	t.Helper()
	c := clock.RealClock{}
	evaluator := query.NewEvaluator(c, func() float64 { return 0.5 }, func(string) (query.Source, bool) { return w, true }, 200)
	options := Options{
		Metrics: w, Objects: w,
		Options: valueapi.Options{
			Enabled: func(schema.GroupVersion) bool { return true }, Querier: evaluator, Quota: stream.NewQuota(c, func() float64 { return 0.5 }, usualLimits), Clock: c,
			Random: func() float64 { return 0.5 }, MinRequestTimeout: 30 * time.Minute,
			Settings: stream.Settings{BookmarkInterval: time.Minute, MaxAge: time.Hour, StallTimeout: time.Minute},
		},
	}
	generic := apiserver.New(t, Scheme, apiserver.Definitions(resourcemetrics.GetOpenAPIDefinitions, OpenAPIDefinitions), func(config *serverConfig) {
		config.RequestInfoResolver = valueapi.NewRequestInfoResolver(genericapiserver.NewRequestInfoResolver(config), custom_metrics.GroupName)
		for _, f := range mutate {
			f(config, &options)
		}
	})
	group, err := InstallAPI(generic, options)
	if err != nil {
		t.Fatalf("installing the API group: %v", err)
	}
	generic.PrepareRun()
	s := &served{group: group, quota: options.Quota, generic: generic}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { evaluator.Run(ctx) })
	if group != nil {
		running.Go(func() { group.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

// answer is what came back over HTTP.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (s *served) do(t testing.TB, method, path, accept string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := s.http().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{code: response.StatusCode, header: response.Header, body: body}
}

func root(version string) string {
	return fmt.Sprintf("/apis/%s/%s", custom_metrics.GroupName, version)
}
