// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	restclient "k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	externalclient "k8s.io/metrics/pkg/client/external_metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/test/apiserver"
)

// values are the labels and values of a list, in order.
func values(list *v1beta1.ExternalMetricValueList) []string {
	all := []string{}
	for i := range list.Items {
		all = append(all, labels.Set(list.Items[i].MetricLabels).String()+" "+list.Items[i].Value.String())
	}
	return all
}

func (w *world) list(path string) *v1beta1.ExternalMetricValueList {
	w.t.Helper()
	code, body := w.get(path)
	if code != http.StatusOK {
		w.t.Fatalf("GET %s: %d %s", path, code, body)
	}
	var list v1beta1.ExternalMetricValueList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		w.t.Fatalf("decode %s: %v", body, err)
	}
	return &list
}

func TestSelectors(t *testing.T) {
	w := newWorld(t)
	a, eu, us := "queue=a,region=eu 3500m", "queue=b,region=eu 7", "queue=b,region=us 9"
	tests := map[string]struct {
		selector string
		want     []string
	}{
		"none":                 {"", []string{a, eu, us}},
		"equal":                {"queue%3Db", []string{eu, us}},
		"not equal":            {"queue!%3Db", []string{a}},
		"in":                   {"region+in+(us,asia)", []string{us}},
		"not in":               {"region+notin+(us,asia)", []string{a, eu}},
		"there":                {"queue", []string{a, eu, us}},
		"not there, not known": {"!team", []string{a, eu, us}},
		"every label fixed":    {"queue%3Db,region%3Dus", []string{us}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			list := w.list(path("queue_length", "?labelSelector="+tc.selector))
			if diff := cmp.Diff(tc.want, values(list)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if list.ResourceVersion != fmt.Sprint(t0.UnixMilli()) {
				t.Errorf("resourceVersion %q, want that of the evaluation", list.ResourceVersion)
			}
		})
	}
}

// TestValue: all that is known of a value is in it.
func TestValue(t *testing.T) {
	w := newWorld(t)
	w.add("rate_of_orders", sample(0.0015, nil))
	seconds := int64(120)
	want := []v1beta1.ExternalMetricValue{{MetricName: "rate_of_orders", MetricLabels: map[string]string{}, Timestamp: metav1.NewTime(t0.Add(-1e9)), WindowSeconds: &seconds}}
	got := w.list(path("rate_of_orders", ""))
	if len(got.Items) != 1 || got.Items[0].Value.String() != "2m" || got.Kind != "ExternalMetricValueList" || got.APIVersion != "external.metrics.k8s.io/v1beta1" {
		t.Fatalf("got %+v", got)
	}
	want[0].Value = got.Items[0].Value
	if diff := cmp.Diff(want, got.Items, cmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNames: what a metric may be called, and how it is asked for.
func TestNames(t *testing.T) {
	w := newWorld(t)
	for i, metric := range []string{"status", "finalize", "metrics", "watch", "namespaces", "cloud/queue/length", "a.b-c:d", "*"} {
		w.add(metric, sample(float64(i), nil))
		code, body := w.get(path(strings.ReplaceAll(query.EscapeName(metric), `\|`, "%5C%7C"), ""))
		if want := fmt.Sprintf(`"metricName":%q`, metric); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", metric, code, body)
		}
	}
	for path, want := range map[string]int{
		path("missing", ""):       http.StatusNotFound,
		path("cloud/queue", ""):   http.StatusNotFound,
		path("cloud%2Fqueue", ""): http.StatusNotFound,
		path("status/x", ""):      http.StatusNotFound,
		"/apis/external.metrics.k8s.io/v1beta1/watch/namespaces/shop/queue_length": http.StatusNotFound,
		"/apis/external.metrics.k8s.io/v1beta1/queue_length":                       http.StatusNotFound,
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/shop":                    http.StatusNotFound,
	} {
		if code, body := w.get(path); code != want {
			t.Errorf("GET %s: %d, want %d: %s", path, code, want, body)
		}
	}
}

func TestNamespaces(t *testing.T) {
	w := newWorld(t)
	w.add("orders", sample(1, nil))
	w.metrics["orders"] = []string{"shop", "bank"}
	for namespace, want := range map[string]int{"shop": http.StatusOK, "bank": http.StatusOK, "farm": http.StatusNotFound} {
		if code, body := w.get("/apis/external.metrics.k8s.io/v1beta1/namespaces/" + namespace + "/orders"); code != want {
			t.Errorf("%s: %d, want %d: %s", namespace, code, want, body)
		}
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	w.add("nothing_fits", sample(math.NaN(), nil), sample(math.Inf(1), labels.Set{"a": "b"}))
	lag := []query.Sample{sample(4, labels.Set{"partition": "0"}), sample(math.Inf(1), labels.Set{"partition": "1"}), sample(3, labels.Set{"partition": "2"})}
	w.add("lag_seconds", lag...)
	w.add("rest_of_lag_seconds", lag...)
	const notWhole = `external metric \"lag_seconds\" (spec.externalMetrics.rules[0]): there is no value, since the series {partition=\"1\"} has none: ` +
		`Infinite: the value is infinite; correct the query, or set invalidValuesPolicy to Omit in spec.externalMetrics.rules[0], which serves the other series`
	w.add("empty")
	tests := map[string]struct {
		method, path string
		code         int
		says         string
	}{
		"a selector that does not parse": {path: path("queue_length", "?labelSelector=a+b+c"), code: http.StatusBadRequest},
		"no value fits":                  {path: path("nothing_fits", ""), code: http.StatusNotFound, says: "Infinite: the value is infinite (and 1 series more"},
		"one series has no value":        {path: path("lag_seconds", ""), code: http.StatusNotFound, says: notWhole},
		"of a watch":                     {path: path("lag_seconds", "?watch=true"), code: http.StatusNotFound, says: "Infinite: the value is infinite; correct"},
		"others are selected":            {path: path("lag_seconds", "?labelSelector=partition!%3D1"), code: http.StatusOK, says: `"value":"3"`},
		"the rest is served":             {path: path("rest_of_lag_seconds", ""), code: http.StatusOK, says: `"value":"4"},{`},
		"no series":                      {path: path("empty", ""), code: http.StatusNotFound, says: `external metric \"empty\" (spec.externalMetrics.rules[0]): there is no value: the source answers no series to the query`},
		"no series is selected":          {path: path("queue_length", "?labelSelector=!queue"), code: http.StatusNotFound, says: `there is no value: the source answers 3 series, but none that the selector \"!queue\" selects`},
		"no series has the label":        {path: path("queue_length", "?labelSelector=name%3Da"), code: http.StatusNotFound, says: `there is no value: the source answers 3 series, but none with the label \"name\"`},
		"POST":                           {method: http.MethodPost, path: path("queue_length", ""), code: http.StatusMethodNotAllowed},
		"DELETE":                         {method: http.MethodDelete, path: path("status", ""), code: http.StatusMethodNotAllowed},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			code, body := w.read(w.do(method, tc.path)) //nolint:bodyclose // do has it closed at the end.
			if code != tc.code || !strings.Contains(body, tc.says) {
				t.Errorf("%d %s; want %d, mentioning %q", code, body, tc.code, tc.says)
			}
		})
	}
}

// TestSourceFails: the caller hears it in the source's own words, never an empty list.
func TestSourceFails(t *testing.T) {
	w := newWorld(t)
	w.fail("the disk is full")
	code, body := w.get(path("queue_length", ""))
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "the disk is full") || !strings.Contains(body, `external metric \"queue_length\" (spec.externalMetrics.rules[0]): source \"main\"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, body := w.get(path("queue_length", "?watch=true")); code != http.StatusServiceUnavailable || !strings.Contains(body, `watch external metric \"queue_length\": `) {
		t.Errorf("watch: %d %s", code, body)
	}
}

func TestEncodings(t *testing.T) {
	w := newWorld(t)
	for accept, want := range map[string]string{
		"application/json":                             `"metricName":"queue_length"`,
		"application/yaml":                             "metricName: queue_length",
		"application/vnd.kubernetes.protobuf":          "queue_length",
		"application/cbor":                             "queue_length",
		"application/json;as=Table;v=v1;g=meta.k8s.io": `"cells":["queue_length","queue=a,region=eu","3500m","0s",`,
	} {
		response := w.do(http.MethodGet, path("queue_length", ""), "Accept", accept) //nolint:bodyclose // do has it closed at the end.
		code, body := w.read(response)
		if code != http.StatusOK || !strings.Contains(body, want) || !strings.HasPrefix(response.Header.Get("Content-Type"), strings.Split(accept, ";")[0]) {
			t.Errorf("%s: %d %s %s", accept, code, response.Header.Get("Content-Type"), body)
		}
	}
}

// TestStockClient is the client that the HPA controller has.
func TestStockClient(t *testing.T) {
	w := newWorld(t)
	w.add("cloud/queue", sample(4, labels.Set{"q": "x"}))
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		client, err := externalclient.NewForConfig(&restclient.Config{Host: serverURL, Dial: w.network.Dial, ContentConfig: restclient.ContentConfig{ContentType: contentType}})
		if err != nil {
			t.Fatal(err)
		}
		list, err := client.NamespacedMetrics("shop").List(`cloud\|queue`, labels.Everything())
		if err != nil {
			t.Fatalf("%s: %v", contentType, err)
		}
		if diff := cmp.Diff([]string{"q=x 4"}, values(list)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", contentType, diff)
		}
	}
}

func TestDiscovery(t *testing.T) {
	w := newWorld(t)
	code, body := w.get("/apis/external.metrics.k8s.io/v1beta1")
	if code != http.StatusOK || !strings.Contains(body, `"name":"queue_length","singularName":"","namespaced":true,"kind":"ExternalMetricValueList","verbs":["get","watch"]`) {
		t.Errorf("%d %s", code, body)
	}
	if code, body := w.get("/openapi/v3/apis/external.metrics.k8s.io/v1beta1"); code != http.StatusOK || !strings.Contains(body, "ExternalMetricValueList") {
		t.Errorf("OpenAPI: %d %.300s", code, body)
	}
}

// TestDiscoveryWithoutMetrics: the version has a resource that nothing deletes, and that is read as an empty list.
func TestDiscoveryWithoutMetrics(t *testing.T) {
	w := newWorld(t)
	const resource = `"name":"no-metrics","singularName":"","namespaced":true,"kind":"ExternalMetricValueList","verbs":["get","watch"]`
	if _, body := w.get("/apis/external.metrics.k8s.io/v1beta1"); strings.Contains(body, v1alpha1.NoMetrics) {
		t.Errorf("although there is a metric: %s", body)
	}
	w = newWorld(t, func(w *world) { clear(w.metrics) })
	if code, body := w.get("/apis/external.metrics.k8s.io/v1beta1"); code != http.StatusOK || !strings.Contains(body, resource) {
		t.Errorf("%d %s", code, body)
	}
	server := httptest.NewServer(w.handler)
	defer server.Close()
	preferred := apiserver.RequireCached(t, server.URL)
	if len(preferred) != 1 || len(preferred[0].APIResources) != 1 || preferred[0].APIResources[0].Name != v1alpha1.NoMetrics {
		t.Errorf("kubectl api-resources would print %v", preferred)
	}
	if found := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"delete"}}, preferred); len(found) > 0 {
		t.Errorf("controllers would delete %v", found)
	}
	for _, namespace := range []string{"shop", "*"} {
		want := `{"kind":"ExternalMetricValueList","apiVersion":"external.metrics.k8s.io/v1beta1","metadata":{},"items":[]}`
		if code, body := w.get("/apis/external.metrics.k8s.io/v1beta1/namespaces/" + namespace + "/no-metrics"); code != http.StatusOK || strings.TrimSpace(body) != want {
			t.Errorf("%s: %d %s", namespace, code, body)
		}
	}
	if code, body := w.get(path(v1alpha1.NoMetrics, "?explain=true")); code != http.StatusNotFound {
		t.Errorf("its explanation: %d %s", code, body)
	}
	// Discovery offers watches, and so there are.
	if code, body := w.get(path(v1alpha1.NoMetrics, "?watch=true&timeoutSeconds=1")); code != http.StatusOK || body != "" {
		t.Errorf("a watch: %d %s", code, body)
	}
}
