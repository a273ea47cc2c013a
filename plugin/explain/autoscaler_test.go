// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	restclient "k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"
)

// TestPathsOfAutoscalers: what is explained is what the HPA controller's clients ask for, called as
// its metrics client calls them (pkg/controller/podautoscaler/metrics).
func TestPathsOfAutoscalers(t *testing.T) {
	queues := schema.GroupVersionKind{Group: "broker.example.com", Version: "v1", Kind: "Queue"}
	ingresses := schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{queues.GroupVersion(), ingresses.GroupVersion(), {Version: "v1"}})
	mapper.Add(queues, meta.RESTScopeRoot)
	mapper.Add(ingresses, meta.RESTScopeNamespace)
	for _, kind := range []string{"Pod", "Node"} {
		mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: kind}, meta.RESTScopeNamespace)
	}
	parse := func(text string) labels.Selector {
		s, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	type clients struct {
		custom   custom_metrics.CustomMetricsClient
		external external_metrics.ExternalMetricsClient
	}
	object := func(kind schema.GroupKind, name, metric, series string) func(clients) {
		return func(c clients) {
			_, _ = c.custom.NamespacedMetrics("shop").GetForObject(kind, name, metric, parse(series))
		}
	}
	external := func(metric, series string) func(clients) {
		return func(c clients) { _, _ = c.external.NamespacedMetrics("shop").List(metric, parse(series)) }
	}
	for name, test := range map[string]struct {
		args       []string
		autoscaler func(clients)
	}{
		"pods": {[]string{"hits", "--for=pods", "-l", "app=cart,tier in (a,b)"}, func(c clients) {
			_, _ = c.custom.NamespacedMetrics("shop").GetForObjects(schema.GroupKind{Kind: "Pod"}, parse("app=cart,tier in (a,b)"), "hits", labels.Everything())
		}},
		"pods by series": {[]string{"Hits", "--for=pods", "-l", "app=cart", "--metric-selector", "code=200"}, func(c clients) {
			_, _ = c.custom.NamespacedMetrics("shop").GetForObjects(schema.GroupKind{Kind: "Pod"}, parse("app=cart"), "Hits", parse("code=200"))
		}},
		"an object":                 {[]string{"latency", "--for=ingresses.networking.k8s.io/main"}, object(ingresses.GroupKind(), "main", "latency", "")},
		"an object by series":       {[]string{"latency", "--for=ingresses.networking.k8s.io/main", "--metric-selector", "q=0.9"}, object(ingresses.GroupKind(), "main", "latency", "q=0.9")},
		"an object of no namespace": {[]string{"depth", "--for=queues.broker.example.com/orders"}, object(queues.GroupKind(), "orders", "depth", "")},
		"a node":                    {[]string{"load", "--for=nodes/node-a"}, object(schema.GroupKind{Kind: "Node"}, "node-a", "load", "")},
		"a namespace": {[]string{"depth", "--for=namespaces/shop"}, func(c clients) {
			_, _ = c.custom.RootScopedMetrics().GetForObject(schema.GroupKind{Kind: "Namespace"}, "shop", "depth", labels.Everything())
		}},
		"an external metric":            {[]string{"queue_depth", "--external", "-l", "queue=mail"}, external("queue_depth", "queue=mail")},
		"capital letters":               {[]string{"QueueDepth", "--external"}, external("QueueDepth", "")},
		"capital letters in discovery":  {[]string{"QueueDepth"}, external("QueueDepth", "")},
		"a slash, as autoscalers write": {[]string{`Mail\|queue`, "--external"}, external(`Mail\|queue`, "")},
		"a slash":                       {[]string{"mail/queue", "--external"}, external(`mail\|queue`, "")},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			resources := map[string][]metav1.APIResource{
				custom: {{Name: "nodes/load"}, {Name: "queues.broker.example.com/depth"}, {Name: "namespaces/depth"}}, ext: {{Name: "QueueDepth", Namespaced: true}},
			}
			w := &world{resources: resources}
			server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				path := r.URL.EscapedPath()
				if _, discovered := resources[path[len("/apis/"):]]; discovered {
					w.ServeHTTP(rw, r)
					return
				}
				query := url.Values{}
				for key, values := range r.URL.Query() {
					if values[0] != "" && key != "explain" {
						query[key] = values
					}
				}
				asked = append(asked, path+"?"+query.Encode())
				http.NotFound(rw, r)
			}))
			defer server.Close()
			config := &restclient.Config{Host: server.URL}
			objects, err := custom_metrics.NewForVersionForConfig(config, mapper, schema.GroupVersion{Group: customGroup, Version: "v1beta2"})
			if err != nil {
				t.Fatal(err)
			}
			test.autoscaler(clients{objects, external_metrics.NewForConfigOrDie(config)})
			want := asked
			asked = nil
			_, _, errs := runAt(t, server, append(test.args, "-n", "shop")...)
			if diff := cmp.Diff(want, asked); diff != "" || len(want) != 1 {
				t.Errorf("(-autoscaler +explain):\n%s\n%s", diff, errs)
			}
		})
	}
}
