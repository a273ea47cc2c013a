//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
	customclient "k8s.io/metrics/pkg/client/custom_metrics"
	externalclient "k8s.io/metrics/pkg/client/external_metrics"
)

// value is one of any of the APIs, as JSON has it.
type value struct {
	DescribedObject struct{ Name string }
	MetricLabels    map[string]string
	Value           string
}

func (v *value) String() string {
	if v.DescribedObject.Name != "" {
		return v.DescribedObject.Name + " " + v.Value
	}
	return labels.Set(v.MetricLabels).String() + " " + v.Value
}

func valuesOf(body []byte) ([]string, error) {
	var list struct{ Items []value }
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode %s: %w", body, err)
	}
	all := []string{}
	for i := range list.Items {
		all = append(all, list.Items[i].String())
	}
	return all, nil
}

// valuesAt asks as an administrator.
func valuesAt(t *testing.T, path string) []string {
	t.Helper()
	body, err := raw(t.Context(), path)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	all, err := valuesOf(body)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func wantValues(ctx context.Context, path string, want ...string) error {
	body, err := raw(ctx, path)
	if err != nil {
		return err
	}
	got, err := valuesOf(body)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%q, want %q", got, want)
	}
	return nil
}

func testValueSelectors(t *testing.T) {
	for path, want := range map[string][]string{
		requestsPath + "?labelSelector=app%3Dvalues":                                         {"values-0 3500m", "values-1 7"},
		requestsPath + "?labelSelector=app%3Dnothing":                                        {},
		"/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/values-1/http_requests": {"values-1 7"},
		queuePath + "?labelSelector=queue%3Da":                                               {"queue=a 10"},
		queuePath + "?labelSelector=queue+in+(b,c)":                                          {"queue=b 20"},
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/default/cloud%5C%7Cqueue":          {"queue=a 10", "queue=b 20"},
	} {
		if got := valuesAt(t, path); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for path, want := range map[string]metav1.StatusReason{
		queuePath + "?labelSelector=a+b+c":                                        metav1.StatusReasonBadRequest,
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/default/no_such_metric": metav1.StatusReasonNotFound,
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/values-0/no": metav1.StatusReasonNotFound,
	} {
		if _, err := raw(t.Context(), path); apierrors.ReasonForError(err) != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

func testValueEncodings(t *testing.T) {
	for _, path := range []string{requestsPath, queuePath} {
		for accept, want := range map[string]string{
			runtime.ContentTypeJSON: `"value":`, runtime.ContentTypeYAML: "value:", runtime.ContentTypeProtobuf: "k8s\x00",
			"application/json;as=Table;v=v1;g=meta.k8s.io": `"columnDefinitions"`,
		} {
			body, err := cluster.client.Discovery().RESTClient().Get().RequestURI(path).SetHeader("Accept", accept).DoRaw(t.Context())
			if err != nil || !strings.Contains(string(body), want) {
				t.Errorf("%s as %s: %v %s", path, accept, err, body)
			}
		}
	}
}

// testStockValueClients uses the clients of k8s.io/metrics unchanged, as the HPA
// controller makes them: the version of custom metrics is the one that discovery prefers.
func testStockValueClients(t *testing.T) {
	resources, err := discovery.NewDiscoveryClientForConfig(cluster.config)
	if err != nil {
		t.Fatal(err)
	}
	cached := cacheddiscovery.NewMemCacheClient(resources)
	available := customclient.NewAvailableAPIsGetter(resources)
	custom := customclient.NewForConfig(cluster.config, restmapper.NewDeferredDiscoveryRESTMapper(cached), available)
	version, err := available.PreferredVersion()
	if err != nil || version.Version != "v1beta2" {
		t.Errorf("preferred version %v, %v", version, err)
	}
	pods := schema.GroupKind{Kind: "Pod"}
	list, err := custom.NamespacedMetrics("default").GetForObjects(pods, labels.SelectorFromSet(labels.Set{"app": "values"}), "http_requests", labels.Everything())
	if err != nil || len(list.Items) != 2 {
		t.Errorf("for objects: %v %+v", err, list)
	}
	one, err := custom.NamespacedMetrics("default").GetForObject(pods, "values-0", "http_requests", labels.Everything())
	if err != nil || one.Value.MilliValue() != 3500 {
		t.Errorf("for an object: %v %+v", err, one)
	}
	external, err := externalclient.NewForConfig(cluster.config)
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range []string{"queue_length", `cloud\|queue`} {
		values, err := external.NamespacedMetrics("default").List(metric, labels.SelectorFromSet(labels.Set{"queue": "b"}))
		if err != nil || len(values.Items) != 1 || values.Items[0].Value.Value() != 20 {
			t.Errorf("external %s: %v %+v", metric, err, values)
		}
	}
}

// testValueDiscovery: discovery follows the metrics, every few seconds.
func testValueDiscovery(t *testing.T) {
	for version, want := range map[string]string{
		"custom.metrics.k8s.io/v1beta2": "pods/http_requests", "custom.metrics.k8s.io/v1beta1": "namespaces/http_requests", "external.metrics.k8s.io/v1beta1": `cloud\|queue`,
	} {
		eventually(t, 20*time.Second, version+" lists "+want, func() error {
			list, err := cluster.client.Discovery().ServerResourcesForGroupVersion(version)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == want })
			if i < 0 || !slices.Equal(list.APIResources[i].Verbs, metav1.Verbs{"get", "watch"}) {
				return fmt.Errorf("%+v", list.APIResources)
			}
			return nil
		})
	}
}

// testOneQueryForMany: within an interval all have one evaluation; some intervals pass
// while there are so many requests.
func testOneQueryForMany(t *testing.T, prometheus *fakePrometheus) {
	before, began := prometheus.asked("queue_length"), time.Now()
	for range 50 {
		valuesAt(t, queuePath)
	}
	// One at each second's boundary, and a little.
	most := 2 * (int(time.Since(began)/time.Second) + 2)
	if asked := prometheus.asked("queue_length") - before; asked > most {
		t.Errorf("50 requests cost %d queries, want at most %d", asked, most)
	}
}
