//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	customclient "k8s.io/metrics/pkg/client/custom_metrics"
	externalclient "k8s.io/metrics/pkg/client/external_metrics"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	valuesBackend = "values"
	requestsPath  = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/http_requests"
	queuePath     = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_length"
)

// valuesSpec has rules in prometheus-adapter's language over one server.
func valuesSpec(url string) v1alpha1.MetricsBackendSpec {
	second := &metav1.Duration{Duration: time.Second}
	return v1alpha1.MetricsBackendSpec{
		ResourceMetrics: &v1alpha1.ResourceMetricsSpec{Scrape: v1alpha1.ScrapeSpec{Interval: second, Timeout: second}},
		Sources: []v1alpha1.SourceSpec{{Name: "main", Prometheus: &v1alpha1.PrometheusSource{
			URL: url, Interval: second, SeriesInterval: &metav1.Duration{Duration: 5 * time.Second},
			Authentication: v1alpha1.SourceAuthentication{BearerToken: &v1alpha1.SecretKeyReference{SecretReference: v1alpha1.SecretReference{Name: "prometheus"}, Key: "token"}},
		}}},
		CustomMetrics: &v1alpha1.CustomMetricsSpec{Rules: []v1alpha1.MetricRule{{
			SeriesQuery: `http_requests_total{namespace!="",pod!=""}`,
			Resources: v1alpha1.RuleResources{Overrides: map[string]v1alpha1.RuleResource{
				"namespace": {Resource: "namespace"}, "pod": {Resource: "pod"},
			}},
			Name:         v1alpha1.RuleName{Matches: "^(.*)_total$", As: "$1"},
			MetricsQuery: `sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)`,
		}}},
		ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Rules: []v1alpha1.MetricRule{{
			SeriesQuery:  `queue_length`,
			Resources:    v1alpha1.RuleResources{Namespaced: new(bool)},
			MetricsQuery: `sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)`,
		}, {
			SeriesQuery:  `queue_length`,
			Resources:    v1alpha1.RuleResources{Namespaced: new(bool)},
			Name:         v1alpha1.RuleName{As: "cloud/queue"},
			MetricsQuery: `sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)`,
		}, {
			SeriesQuery:  `queue_length`,
			Resources:    v1alpha1.RuleResources{Namespaced: new(bool)},
			Name:         v1alpha1.RuleName{As: "status"},
			MetricsQuery: `sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)`,
		}}},
	}
}

// TestValues asks for custom and external metrics as users and autoscalers do: through
// kube-apiserver, with rules over a server with Prometheus' API.
func TestValues(t *testing.T) {
	prometheus := startPrometheus(t)
	prometheus.require("first")
	prometheus.set("3.5", "__name__", "http_requests_total", "namespace", "default", "pod", "values-0")
	prometheus.set("7", "__name__", "http_requests_total", "namespace", "default", "pod", "values-1")
	prometheus.set("10", "__name__", "queue_length", "queue", "a")
	prometheus.set("20", "__name__", "queue_length", "queue", "b")
	cluster.createPod(t, "", "values-0", map[string]string{"app": "values"}, "app")
	cluster.createPod(t, "", "values-1", map[string]string{"app": "values"}, "app")

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}, StringData: map[string]string{"token": "first"}}
	if _, err := cluster.client.CoreV1().Secrets(servingNamespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cluster.delete(t, "secrets", servingNamespace, "prometheus") })
	backends := newBackendClient(t)
	backend := &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: valuesBackend}, Spec: valuesSpec(prometheus.URL)}
	create(t, backends, backend)

	p := cluster.startServing(t, valuesBackend, "--backend="+valuesBackend, "--service-namespace="+servingNamespace, "--service-name="+valuesBackend)
	p.waitReady(t)
	cluster.register(t, valuesBackend, p.port)
	for _, version := range []schema.GroupVersion{
		{Group: "custom.metrics.k8s.io", Version: "v1beta2"}, {Group: "custom.metrics.k8s.io", Version: "v1beta1"}, {Group: "external.metrics.k8s.io", Version: "v1beta1"},
	} {
		cluster.registerGroup(t, valuesBackend, p.port, version)
	}
	// Once the pod is ready nothing is missing: the source has answered, and its series
	// are known.
	for path, want := range map[string][]string{requestsPath: {"values-0 3500m", "values-1 7"}, queuePath: {"queue=a 10", "queue=b 20"}} {
		eventually(t, time.Minute, "the aggregator leads to "+path, func() error {
			_, err := raw(t.Context(), path)
			return err
		})
		if got := valuesAt(t, path); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}

	t.Run("selectors", testValueSelectors)
	t.Run("encodings", testValueEncodings)
	t.Run("stock clients", testStockValueClients)
	t.Run("discovery", testValueDiscovery)
	t.Run("one query for many", func(t *testing.T) { testOneQueryForMany(t, prometheus) })
	t.Run("watch", func(t *testing.T) { testValueWatches(t, prometheus) })
	t.Run("access", testValueAccess)
	t.Run("a metric called status", testMetricCalledStatus)
	t.Run("autoscalers", testAutoscalerNames)
	t.Run("policies", func(t *testing.T) { testPolicies(t, backends) })
	t.Run("declared metrics", func(t *testing.T) { testDeclaredMetrics(t, p, backends, prometheus) })
	t.Run("an edited rule", func(t *testing.T) { testEditedRule(t, backends) })
	t.Run("bad parts", func(t *testing.T) { testBadParts(t, p, backends) })
	t.Run("a rotated credential", func(t *testing.T) { testRotatedCredential(t, prometheus) })
}

func create(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), object)); err != nil {
			t.Errorf("delete %T %s: %v", object, object.GetName(), err)
		}
	})
}

// registerGroup makes an APIService of any group, and waits for it.
func (c *controlPlane) registerGroup(t *testing.T, service string, port int32, version schema.GroupVersion) {
	t.Helper()
	name := version.Version + "." + version.Group
	priority := int32(100)
	if version.Version == "v1beta2" {
		priority = 200
	}
	_, err := c.aggregator.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelBackend: service}},
		Spec: apiregistrationv1.APIServiceSpec{
			Service: &apiregistrationv1.ServiceReference{Namespace: servingNamespace, Name: service, Port: &port},
			Group:   version.Group, Version: version.Version, CABundle: c.servingCA.PEM, GroupPriorityMinimum: 100, VersionPriority: priority,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create APIService %s: %v", name, err)
	}
	t.Cleanup(func() { c.deleteAPIService(t, name) })
	eventually(t, time.Minute, "APIService "+name+" becomes available", func() error {
		service, err := c.aggregator.ApiregistrationV1().APIServices().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range service.Status.Conditions {
			if condition.Type == apiregistrationv1.Available && condition.Status == apiregistrationv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%+v", service.Status.Conditions)
	})
}

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

// stream begins a watch through kube-apiserver.
func stream(t *testing.T, config *rest.Config, path string) (*bufio.Reader, error) {
	t.Helper()
	c, err := rest.UnversionedRESTClientFor(unversioned(config))
	if err != nil {
		t.Fatal(err)
	}
	body, err := c.Get().RequestURI(path).Stream(t.Context())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = body.Close() })
	return bufio.NewReader(body), nil
}

func unversioned(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = clientscheme.Codecs.WithoutConversion()
	return config
}

// event reads the next event as TYPE and what tells values apart.
func event(t *testing.T, lines *bufio.Reader) string {
	t.Helper()
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return "closed"
	}
	var e struct {
		Type   string
		Object json.RawMessage
	}
	if err := json.Unmarshal(line, &e); err != nil {
		t.Fatalf("decode %s: %v", line, err)
	}
	if e.Type != "ADDED" {
		return e.Type + " " + string(e.Object)
	}
	var v value
	if err := json.Unmarshal(e.Object, &v); err != nil {
		t.Fatalf("decode %s: %v", line, err)
	}
	return e.Type + " " + v.String()
}

// testValueWatches: all values at once, and then each new one.
func testValueWatches(t *testing.T, prometheus *fakePrometheus) {
	watches := map[string]struct{ first, then string }{
		queuePath + "?watch=true&labelSelector=queue%3Da":                                          {"ADDED queue=a 10", "ADDED queue=a 11"},
		"/apis/custom.metrics.k8s.io/v1beta2/watch/namespaces/default/pods/values-0/http_requests": {"ADDED values-0 3500m", "ADDED values-0 4500m"},
		requestsPath + "?watch=true&labelSelector=app%3Dvalues&fieldSelector=":                     {"ADDED values-0 3500m", "ADDED values-0 4500m"},
	}
	lines := map[string]*bufio.Reader{}
	for path, want := range watches {
		var err error
		if lines[path], err = stream(t, cluster.config, path); err != nil {
			t.Fatalf("watch %s: %v", path, err)
		}
		if got := event(t, lines[path]); got != want.first {
			t.Errorf("%s begins with %q, want %q", path, got, want.first)
		}
	}
	prometheus.set("11", "__name__", "queue_length", "queue", "a")
	prometheus.set("4.5", "__name__", "http_requests_total", "namespace", "default", "pod", "values-0")
	defer func() {
		prometheus.set("10", "__name__", "queue_length", "queue", "a")
		prometheus.set("3.5", "__name__", "http_requests_total", "namespace", "default", "pod", "values-0")
	}()
	for path, want := range watches {
		// Points of the time before come first, and of other pods in between.
		for {
			if got := event(t, lines[path]); got == want.then {
				break
			} else if !strings.HasPrefix(got, "ADDED ") {
				t.Errorf("%s: %q, want %q", path, got, want.then)
				break
			}
		}
	}
}

// asUser is the configuration of a user.
func asUser(user string, groups ...string) *rest.Config {
	config := rest.CopyConfig(cluster.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

func getAs(t *testing.T, config *rest.Config, path string) error {
	t.Helper()
	c, err := rest.UnversionedRESTClientFor(unversioned(config))
	if err != nil {
		t.Fatal(err)
	}
	_, err = told(c.Get().RequestURI(path).Do(t.Context()))
	return err
}

// told returns an answer, or an error in the server's own words, which DoRaw drops.
func told(r rest.Result) ([]byte, error) {
	if err := r.Error(); err != nil {
		return nil, err
	}
	return r.Raw()
}

// grant lets a user do something in the namespace default.
func grant(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules}
	role, err := cluster.client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = cluster.client.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// testValueAccess: the resource of a role is the metric, for get and for both watches.
func testValueAccess(t *testing.T) {
	get, watch := []string{"get", "list"}, []string{"watch"}
	custom, external := []string{"custom.metrics.k8s.io"}, []string{"external.metrics.k8s.io"}
	grant(t, "polls", rbacv1.PolicyRule{APIGroups: custom, Resources: []string{"pods/http_requests"}, Verbs: get},
		rbacv1.PolicyRule{APIGroups: external, Resources: []string{"queue_length"}, Verbs: get})
	grant(t, "watches", rbacv1.PolicyRule{APIGroups: custom, Resources: []string{"pods/http_requests"}, Verbs: watch},
		rbacv1.PolicyRule{APIGroups: external, Resources: []string{"queue_length"}, Verbs: watch})
	grant(t, "others", rbacv1.PolicyRule{APIGroups: custom, Resources: []string{"pods/other"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: external, Resources: []string{"other"}, Verbs: []string{"*"}})
	customWatch := "/apis/custom.metrics.k8s.io/v1beta2/watch/namespaces/default/pods/*/http_requests"
	eventually(t, 30*time.Second, "the roles are in force", func() error {
		return getAs(t, asUser("polls"), queuePath)
	})
	tests := map[string]map[string]bool{
		requestsPath:              {"polls": true, "watches": false, "others": false},
		queuePath:                 {"polls": true, "watches": false, "others": false},
		customWatch:               {"polls": false, "watches": true, "others": false},
		queuePath + "?watch=true": {"polls": false, "watches": true, "others": false},
	}
	for path, users := range tests {
		for user, allowed := range users {
			var err error
			if strings.Contains(path, "watch") {
				_, err = stream(t, asUser(user), path)
			} else {
				err = getAs(t, asUser(user), path)
			}
			if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
				t.Errorf("%s of %s: %v, want allowed: %t", path, user, err, allowed)
			}
		}
	}
}

// testMetricCalledStatus: kube-apiserver takes it for a part of the Namespace, and this
// server for the metric that it is.
func testMetricCalledStatus(t *testing.T) {
	path := "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/status"
	group := []string{"external.metrics.k8s.io"}
	metric := rbacv1.PolicyRule{APIGroups: group, Resources: []string{"status"}, Verbs: []string{"list"}}
	part := rbacv1.PolicyRule{APIGroups: group, Resources: []string{"namespaces/status"}, Verbs: []string{"get"}}
	grant(t, "has-both", metric, part)
	grant(t, "has-metric", metric)
	grant(t, "has-part", part)
	eventually(t, 30*time.Second, "the roles are in force", func() error { return getAs(t, asUser("has-both"), path) })
	for _, user := range []string{"has-metric", "has-part"} {
		if err := getAs(t, asUser(user), path); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want 403", user, err)
		}
	}
}

// testAutoscalerNames: what the name of an external metric may be in an autoscaler.
func testAutoscalerNames(t *testing.T) {
	for name, allowed := range map[string]bool{`cloud\|queue`: true, "cloud/queue": false} {
		target := resource.MustParse("30")
		_, err := cluster.client.AutoscalingV2().HorizontalPodAutoscalers("default").Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: "values"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", APIVersion: "apps/v1", Name: "values"}, MaxReplicas: 3,
				Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
					Metric: autoscalingv2.MetricIdentifier{Name: name},
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &target},
				}}},
			},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if allowed && err != nil || !allowed && !apierrors.IsInvalid(err) {
			t.Errorf("an autoscaler on %s: %v, want allowed: %t", name, err, allowed)
		}
	}
}

// testPolicies: a policy that comes ends the watch that it denies.
func testPolicies(t *testing.T, backends client.Client) {
	watching, err := stream(t, cluster.config, queuePath+"?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	if got := event(t, watching); !strings.HasPrefix(got, "ADDED ") {
		t.Fatalf("the watch begins with %q", got)
	}
	p := &v1alpha1.ExternalMetricsPolicy{ObjectMeta: metav1.ObjectMeta{Name: "only-a"}}
	p.Spec.Namespaces = []string{"default"}
	p.Spec.Rules = []v1alpha1.ExternalMetricsPolicyRule{{Metric: "queue_.*", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"queue": "a"}}}}
	create(t, backends, p)
	for {
		got := event(t, watching)
		if strings.HasPrefix(got, "ADDED ") {
			continue
		}
		if !strings.Contains(got, `"code":403`) || !strings.Contains(got, "only-a") {
			t.Errorf("the watch ends with %q", got)
		}
		break
	}
	if got := event(t, watching); got != "closed" {
		t.Errorf("after its end: %q", got)
	}
	if err := getAs(t, cluster.config, queuePath); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `ExternalMetricsPolicy "only-a"`) {
		t.Errorf("list: %v", err)
	}
	eventually(t, 10*time.Second, "a subset may be read", func() error {
		return wantValues(t.Context(), queuePath+"?labelSelector=queue%3Da", "queue=a 10")
	})
	if err := backends.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "without the policy all may be read", func() error { return getAs(t, cluster.config, queuePath) })
}

func testDeclaredMetrics(t *testing.T, p *process, backends client.Client, prometheus *fakePrometheus) {
	prometheus.set("5", "__name__", "orders_open", "namespace", "default", "shop", "x")
	prometheus.set("50", "__name__", "orders_open", "namespace", "bank", "shop", "x")
	m := &v1alpha1.ExternalMetric{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "default"}}
	m.Spec.Query, m.Spec.Labels = "orders_open", map[string]string{"team": "a"}
	create(t, backends, m)
	path := "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/orders"
	eventually(t, 10*time.Second, "the metric is served, of its own namespace alone", func() error {
		return wantValues(t.Context(), path, "namespace=default,shop=x,team=a 5")
	})
	if got := valuesAt(t, path+"?labelSelector=team%3Db"); len(got) != 0 {
		t.Errorf("another selector: %q", got)
	}
	if err := getAs(t, cluster.config, "/apis/external.metrics.k8s.io/v1beta1/namespaces/bank/orders"); !apierrors.IsNotFound(err) {
		t.Errorf("in another namespace: %v", err)
	}
	status, body, err := p.get(t.Context(), v1alpha1.DeclaredPath, cluster.token(t, "reader"))
	if err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d %v %s", v1alpha1.DeclaredPath, status, err, body)
	}
	var report v1alpha1.DeclaredReport
	if err := json.Unmarshal([]byte(body), &report); err != nil {
		t.Fatal(err)
	}
	want := []v1alpha1.DeclaredHealth{{
		Kind: "ExternalMetric", Namespace: "default", Name: "orders", UID: m.UID, Generation: 1, Ready: true, Value: "5", Values: 1,
	}}
	for i := range report.Metrics {
		report.Metrics[i].Time = metav1.Time{}
	}
	if diff := cmp.Diff(want, report.Metrics); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// testEditedRule: an edit is in force within seconds, in no other process.
func testEditedRule(t *testing.T, backends client.Client) {
	edit(t, backends, func(b *v1alpha1.MetricsBackend) { b.Spec.ExternalMetrics.Rules[1].Name.As = "renamed" })
	eventually(t, 5*time.Second, "the metric has its new name", func() error {
		return wantValues(t.Context(), "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/renamed", "queue=a 10", "queue=b 20")
	})
	if err := getAs(t, cluster.config, "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/cloud%5C%7Cqueue"); !apierrors.IsNotFound(err) {
		t.Errorf("under its old name: %v", err)
	}
}

func edit(t *testing.T, backends client.Client, change func(*v1alpha1.MetricsBackend)) {
	t.Helper()
	backend := &v1alpha1.MetricsBackend{}
	if err := backends.Get(t.Context(), client.ObjectKey{Name: valuesBackend}, backend); err != nil {
		t.Fatal(err)
	}
	change(backend)
	if err := backends.Update(t.Context(), backend); err != nil {
		t.Fatal(err)
	}
}

// testBadParts: a bad rule and a source that is away cost themselves alone.
func testBadParts(t *testing.T, p *process, backends client.Client) {
	edit(t, backends, func(b *v1alpha1.MetricsBackend) {
		b.Spec.Sources = append(b.Spec.Sources, v1alpha1.SourceSpec{Name: "away", Prometheus: &v1alpha1.PrometheusSource{URL: "http://127.0.0.1:1"}})
		b.Spec.ExternalMetrics.Rules = append(b.Spec.ExternalMetrics.Rules, v1alpha1.MetricRule{SeriesQuery: "queue_length{"})
	})
	reader := cluster.token(t, "reader")
	eventually(t, 30*time.Second, "the report tells of both", func() error {
		report, err := p.report(t.Context(), reader)
		if err != nil {
			return err
		}
		if len(report.Sources) != 2 || !report.Sources[0].Healthy || report.Sources[1].Healthy || report.Sources[1].Reason != "ConnectionFailed" ||
			report.RuleCount != 5 || report.FailingRules != 1 || len(report.Rules) == 0 || report.Rules[len(report.Rules)-1].Path != "spec.externalMetrics.rules[3]" {
			return fmt.Errorf("%+v", report)
		}
		return nil
	})
	if got := valuesAt(t, queuePath); !slices.Equal(got, []string{"queue=a 10", "queue=b 20"}) {
		t.Errorf("other rules: %q", got)
	}
	if err := p.ready(t.Context()); err != nil {
		t.Errorf("a source took readiness away: %v", err)
	}
}

// testRotatedCredential: the source refuses the old token, and takes the new one as soon
// as it is in the Secret.
func testRotatedCredential(t *testing.T, prometheus *fakePrometheus) {
	prometheus.require("second")
	eventually(t, 30*time.Second, "the caller hears that the source refuses", func() error {
		err := getAs(t, cluster.config, queuePath)
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "Unauthorized") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	secrets := cluster.client.CoreV1().Secrets(servingNamespace)
	secret, err := secrets.Get(t.Context(), "prometheus", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data["token"] = []byte("second")
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 45*time.Second, "the new token is in use", func() error {
		return wantValues(t.Context(), queuePath, "queue=a 10", "queue=b 20")
	})
}
