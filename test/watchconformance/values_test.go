// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/custommetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valuelist"
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

func (h hits) ReadObjects(query.ObjectRequest) (query.Reading, query.ObjectMetric, error) {
	return query.Reading{
		Question: query.Question{Source: "main", Expression: "hits", Interval: valuesInterval},
		Origin:   "spec.customMetrics.rules[0]", ObjectLabel: "pod",
	}, h.metric(), nil
}

func (hits) Names(context.Context, schema.GroupVersionResource, string, labels.Selector) ([]string, error) {
	return valuePods, nil
}

func (hits) Known(schema.GroupVersionResource, string, labels.Selector) ([]string, bool) {
	return valuePods, true
}

func (hits) Evaluate(_ context.Context, _ string, at time.Time) (*query.Answer, error) {
	answer := &query.Answer{Time: at}
	for _, pod := range valuePods {
		answer.Samples = append(answer.Samples, query.Sample{Labels: map[string]string{"pod": pod}, Value: float64(at.Unix() % 1000), Time: at})
	}
	return answer, nil
}

// newValuesReference is custom.metrics.k8s.io on a real generic API server.
func newValuesReference(t *testing.T) *reference {
	t.Helper()
	c, random := clock.RealClock{}, func() float64 { return 0.5 }
	desk := query.NewDesk(c, random, func(string) (query.Source, bool) { return hits{}, true }, query.Limits{})
	config := genericapiserver.NewConfig(serializer.NewCodecFactory(custommetrics.Scheme))
	config.ExternalAddress = "reference.test:443"
	config.LoopbackClientConfig = &rest.Config{}
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.Authentication.Authenticator = anonymous.NewAuthenticator(nil)
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	config.RequestInfoResolver = valuelist.NewRequestInfoResolver(genericapiserver.NewRequestInfoResolver(config), "custom.metrics.k8s.io")
	definitions := func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		all := resourcemetrics.GetOpenAPIDefinitions(ref)
		maps.Copy(all, custommetrics.OpenAPIDefinitions(ref))
		return all
	}
	namer := openapinamer.NewDefinitionNamer(custommetrics.Scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	generic, err := config.Complete(nil).New("reference", genericapiserver.NewEmptyDelegate())
	if err != nil {
		t.Fatal(err)
	}
	group, err := custommetrics.InstallAPI(generic, custommetrics.Options{
		Metrics: hits{}, Asker: desk, Objects: hits{}, Clock: c, Random: random,
		Admission:         stream.NewAdmission(c, random, roomy),
		Settings:          stream.Settings{BookmarkInterval: time.Second, MaxAge: time.Hour, StallTimeout: time.Minute},
		MinRequestTimeout: 30 * time.Minute,
		Enabled:           func(schema.GroupVersion) bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	generic.PrepareRun()
	r := &reference{server: httptest.NewServer(stream.WithRequestFacts(generic.Handler))}
	r.config = &rest.Config{Host: r.server.URL}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { desk.Run(ctx) })
	running.Go(func() { group.Run(ctx) })
	t.Cleanup(func() {
		r.server.CloseClientConnections()
		r.server.Close()
		cancel()
		running.Wait()
		generic.Destroy()
	})
	return r
}

func valuesOptions() Options {
	return Options{Patience: referencePatience, PointInterval: 2 * valuesInterval, BookmarkInterval: 2 * time.Second}
}

func hitsAPI() API { return CustomMetric(hits{}.metric().Resource, "shop", "hits") }

// TestValuesConformance: the checks that need no metadata pass for a custom metric.
func TestValuesConformance(t *testing.T) {
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

// valueMutants are servers of values that break a line, and the check that must say so.
var valueMutants = map[string]struct {
	check  string
	mutant func() *mutant
}{
	"an object is never sent": {"first-all", func() *mutant {
		return &mutant{stream: without(func(e mutantEvent) bool { return describes(e) == valuePods[1] })}
	}},
	"only the first data points are sent": {"then-each-new", func() *mutant {
		return onceSent(func(mutantEvent, func(mutantEvent)) {})
	}},
	"a new data point is MODIFIED": {"added-only", func() *mutant {
		return onceSent(func(e mutantEvent, send func(mutantEvent)) { e.Type = "MODIFIED"; send(e) })
	}},
	"bookmarks come unasked": {"bookmarks-only-when-asked", func() *mutant {
		return &mutant{stream: each(func(e mutantEvent, send func(mutantEvent)) {
			send(e)
			send(mutantEvent{Type: "BOOKMARK", Object: map[string]any{"kind": "MetricValueList", "items": []any{}}})
		})}
	}},
	"no bookmarks": {"bookmark-interval", func() *mutant {
		return &mutant{stream: without(func(e mutantEvent) bool { return e.Type == "BOOKMARK" })}
	}},
}

func describes(e mutantEvent) string {
	object, _ := e.Object["describedObject"].(map[string]any)
	name, _ := object["name"].(string)
	return name
}

// onceSent changes the further data points of an object.
func onceSent(again func(mutantEvent, func(mutantEvent))) *mutant {
	return &mutant{stream: func(*http.Request) func(mutantEvent, func(mutantEvent)) {
		sent := map[string]bool{}
		return func(e mutantEvent, send func(mutantEvent)) {
			name := describes(e)
			if name != "" && sent[name] {
				again(e, send)
				return
			}
			sent[name] = true
			send(e)
		}
	}}
}

// TestValueMutants: what tells objects without metadata apart is enough to see what is
// wrong with a server of them.
func TestValueMutants(t *testing.T) {
	r := newValuesReference(t)
	for name, m := range valueMutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := valuesOptions()
			options.Patience, options.Only = mutantPatience, regexp.MustCompile("^"+m.check+"$")
			var report *Report
			// A request that was not answered in time tells of the machine.
			for range mutantTries {
				var err error
				if report, err = Run(t.Context(), m.mutant().serve(t, r), hitsAPI(), options); err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(report.Results, overdue) {
					break
				}
			}
			if got := len(report.With(Failed, Promised)); got != 2 {
				t.Errorf("%s failed in %d versions, want 2:\n%s", m.check, got, report)
			}
		})
	}
}
