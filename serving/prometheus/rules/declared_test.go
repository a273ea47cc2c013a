// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

func meta(namespace, name string, second int64) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), Generation: 1, CreationTimestamp: metav1.Unix(second, 0),
	}
}

func customMetric(namespace, name, query string) *v1alpha1.CustomMetric {
	return &v1alpha1.CustomMetric{
		ObjectMeta: meta(namespace, name, 1),
		Spec: v1alpha1.CustomMetricSpec{
			DeclaredMetricSpec: v1alpha1.DeclaredMetricSpec{Query: query},
			DescribedObject:    v1alpha1.DescribedObjects{Resource: "pods", NameLabel: "pod"},
		},
	}
}

func externalMetric(namespace, name, query string) *v1alpha1.ExternalMetric {
	return &v1alpha1.ExternalMetric{
		ObjectMeta: meta(namespace, name, 1),
		Spec:       v1alpha1.ExternalMetricSpec{DeclaredMetricSpec: v1alpha1.DeclaredMetricSpec{Query: query}},
	}
}

func TestDeclaredMetrics(t *testing.T) {
	c := newCatalog(t, backend(nil, nil))
	custom := customMetric("shop", "depth", `max by (pod) (queue_depth)`)
	custom.Spec.MetricName, custom.Spec.DuplicatesPolicy = "queue-depth", v1alpha1.DuplicatesSum
	custom.Spec.Interval = &metav1.Duration{Duration: time.Minute}
	custom.Spec.Fallback = &v1alpha1.MetricFallback{AfterFailures: ptr.To[int32](5), Value: ptr.To(resource.MustParse("1500m"))}
	external := externalMetric("shop", "orders", `sum(orders)`)
	external.Spec.Labels = map[string]string{"queue": "a"}
	external.Spec.InvalidValuesPolicy = v1alpha1.InvalidValuesOmit
	external.Spec.Fallback = &v1alpha1.MetricFallback{LastValue: &v1alpha1.LastValueFallback{MaxAge: &metav1.Duration{Duration: time.Hour}}}
	c.Declare([]*v1alpha1.CustomMetric{custom}, []*v1alpha1.ExternalMetric{external})

	mq, metric, err := c.ObjectQuery(pods("shop", "queue-depth", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(query.MetricQuery{
		Query:  query.Query{Source: "prometheus", Expression: `max by (pod) (queue_depth{namespace="shop"})`, Interval: time.Minute, Tenant: "shop", Declared: true},
		Origin: "CustomMetric shop/depth", ObjectLabel: "pod", Duplicates: v1alpha1.DuplicatesSum,
		Fallback: &query.Fallback{AfterFailures: 5, Static: ptr.To(1.5), MaxAge: 10 * time.Minute},
	}, mq); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if metric.Kind.Kind != "Pod" || metric.Name != "queue-depth" {
		t.Errorf("it describes %+v", metric)
	}
	r := query.ExternalRequest{Namespace: "shop", Metric: "orders", Series: selector(t, "queue=a")}
	mq, err = c.ExternalQuery(r)
	if err != nil {
		t.Fatal(err)
	}
	if mq.Select == nil || mq.Select.String() != "queue=a" {
		t.Errorf("the selector is %v", mq.Select)
	}
	mq.Select = nil
	if diff := cmp.Diff(query.MetricQuery{
		Query:  query.Query{Source: "prometheus", Expression: `sum(orders{namespace="shop"})`, Interval: 15 * time.Second, Tenant: "shop", Declared: true},
		Origin: "ExternalMetric shop/orders", Labels: map[string]string{"queue": "a"}, Duplicates: v1alpha1.DuplicatesReject, OmitInvalid: true,
		Fallback: &query.Fallback{AfterFailures: 3, MaxAge: time.Hour},
	}, mq); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, other := range []string{"orders", "queue-depth"} {
		if _, err := c.ExternalQuery(query.ExternalRequest{Namespace: "other", Metric: other}); !apierrors.IsNotFound(err) {
			t.Errorf("%s in another namespace: %v", other, err)
		}
	}
	if _, _, err := c.ObjectQuery(pods("other", "queue-depth", "a")); !apierrors.IsNotFound(err) {
		t.Errorf("in another namespace: %v", err)
	}
	if diff := cmp.Diff([]string{"pods/queue-depth"}, listOf(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"orders"}, externals(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.Declare(nil, nil)
	if _, _, err := c.ObjectQuery(pods("shop", "queue-depth", "a")); !apierrors.IsNotFound(err) || len(c.Declared()) != 0 || len(listOf(c)) != 0 {
		t.Errorf("after its end: %v", err)
	}
}

// What is wrong with a declared metric, and stops no other.
func TestDeclaredMetricsThatAreWrong(t *testing.T) {
	for name, test := range map[string]struct {
		change          func(*v1alpha1.CustomMetric)
		reason, message string
	}{
		"no PromQL":         {func(m *v1alpha1.CustomMetric) { m.Spec.Query = "sum(" }, ReasonInvalidQuery, "spec.query"},
		"nothing":           {func(m *v1alpha1.CustomMetric) { m.Spec.Query = " \n" }, ReasonInvalidQuery, "empty"},
		"deep":              {func(m *v1alpha1.CustomMetric) { m.Spec.Query = strings.Repeat("-", 1500) + "up" }, ReasonInvalidQuery, "more than 1000 operators"},
		"another namespace": {func(m *v1alpha1.CustomMetric) { m.Spec.Query = `up{namespace="kube-system"}` }, ReasonInvalidQuery, "another namespace"},
		"info":              {func(m *v1alpha1.CustomMetric) { m.Spec.Query = `info(up)` }, ReasonInvalidQuery, "info()"},
		"an unknown source": {func(m *v1alpha1.CustomMetric) { m.Spec.Source = "thanos" }, ReasonUnknownSource, "thanos"},
		"a name":            {func(m *v1alpha1.CustomMetric) { m.Spec.MetricName = "a/b" }, ReasonInvalidName, "a/b"},
		"a resource":        {func(m *v1alpha1.CustomMetric) { m.Spec.DescribedObject.Resource = "brands" }, ReasonUnknownResource, "brands"},
		"no namespace":      {func(m *v1alpha1.CustomMetric) { m.Spec.DescribedObject.Resource = "nodes" }, ReasonInvalidResources, "in no namespace"},
		"namespaces":        {func(m *v1alpha1.CustomMetric) { m.Spec.DescribedObject.Resource = "namespaces" }, ReasonInvalidResources, "own namespace"},
		"another namespace'": {func(m *v1alpha1.CustomMetric) {
			m.Spec.DescribedObject = v1alpha1.DescribedObjects{Resource: "namespaces", Name: "kube-system"}
		}, ReasonInvalidResources, "own namespace"},
		"its own namespace": {func(m *v1alpha1.CustomMetric) {
			m.Spec.DescribedObject = v1alpha1.DescribedObjects{Resource: "namespaces", Name: "shop"}
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCatalog(t, backend(nil, nil))
			bad, good := customMetric("shop", "bad", "up"), customMetric("shop", "good", "up")
			test.change(bad)
			c.Declare([]*v1alpha1.CustomMetric{bad, good}, nil)
			all := c.Declared()
			if len(all) != 2 || all[0].Name != "bad" {
				t.Fatalf("declared are %+v", all)
			}
			if all[0].Reason != test.reason || !strings.Contains(all[0].Message, test.message) {
				t.Errorf("%s: %s, want %s: %s", all[0].Reason, all[0].Message, test.reason, test.message)
			}
			if _, _, err := c.ObjectQuery(pods("shop", "good", "a")); err != nil || all[1].Reason != "" {
				t.Errorf("the other: %v, %+v", err, all[1])
			}
		})
	}
}

func TestOldestDeclarationWins(t *testing.T) {
	spec := backend([]v1alpha1.MetricRule{{SeriesQuery: "m", Resources: namespacePod}}, []v1alpha1.MetricRule{{SeriesQuery: "m"}})
	c := newCatalog(t, spec, seriesOf("m", "namespace", "pod"))
	older, younger, elsewhere := customMetric("shop", "z", "old"), customMetric("shop", "a", "young"), customMetric("other", "m", "elsewhere")
	older.Spec.MetricName, younger.Spec.MetricName = "m", "m"
	younger.CreationTimestamp = metav1.Unix(2, 0)
	external := externalMetric("shop", "m", "declared")
	c.Declare([]*v1alpha1.CustomMetric{younger, elsewhere, older}, []*v1alpha1.ExternalMetric{external})
	origin := func(namespace string) string {
		t.Helper()
		mq, _, err := c.ObjectQuery(pods(namespace, "m", "x"))
		if err != nil {
			t.Fatal(err)
		}
		return mq.Origin
	}
	if diff := cmp.Diff([]string{"CustomMetric shop/z", "CustomMetric other/m", "spec.customMetrics.rules[0]"}, []string{origin("shop"), origin("other"), origin("third")}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	mq, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "m"})
	if err != nil || mq.Origin != "ExternalMetric shop/m" {
		t.Errorf("%+v, %v", mq, err)
	}
	for _, d := range c.Declared() {
		want := ""
		if d.Name == "a" {
			want = ReasonCollision
		}
		if d.Reason != want {
			t.Errorf("%s %s/%s: %q, want %q", d.Kind, d.Namespace, d.Name, d.Reason, want)
		}
		if outdone := strings.Contains(d.Remark, "Metrics.rules[0] makes the metric"); outdone != (want == "") {
			t.Errorf("%s %s/%s remarks %q", d.Kind, d.Namespace, d.Name, d.Remark)
		}
	}
	c.Declare([]*v1alpha1.CustomMetric{younger}, nil)
	if got := origin("shop"); got != "CustomMetric shop/a" {
		t.Errorf("without the older %s counts", got)
	}
}

// An administrator says which label confines, and who is not confined.
func TestTenancy(t *testing.T) {
	spec := backend(nil, nil)
	spec.Sources[0].Prometheus.Tenancy = v1alpha1.SourceTenancy{NamespaceLabel: "kubernetes_namespace", TrustedNamespaces: []string{"monitoring"}}
	c := newCatalog(t, spec)
	c.Declare(nil, []*v1alpha1.ExternalMetric{externalMetric("shop", "m", "sum(up)"), externalMetric("monitoring", "m", "sum(up)")})
	expression := func(namespace string) string {
		t.Helper()
		mq, err := c.ExternalQuery(query.ExternalRequest{Namespace: namespace, Metric: "m"})
		if err != nil {
			t.Fatal(err)
		}
		return mq.Query.Expression
	}
	if diff := cmp.Diff([]string{`sum(up{kubernetes_namespace="shop"})`, "sum(up)"}, []string{expression("shop"), expression("monitoring")}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A change of the source takes effect on metrics that did not change.
	spec.Sources[0].Prometheus.Tenancy = v1alpha1.SourceTenancy{}
	c.Apply(spec)
	if got := expression("monitoring"); got != `sum(up{namespace="monitoring"})` {
		t.Errorf("confined again it is %s", got)
	}
	spec.Sources[0].Prometheus.Tenancy.TrustedNamespaces = []string{"*"}
	c.Apply(spec)
	if got := expression("shop"); got != "sum(up)" {
		t.Errorf("with nobody confined it is %s", got)
	}
}

// The metrics of a namespace are asked for by its name alone.
func TestDeclaredMetricOfANamespace(t *testing.T) {
	c := newCatalog(t, backend(nil, nil))
	m := customMetric("shop", "m", "sum(up)")
	m.Spec.DescribedObject = v1alpha1.DescribedObjects{Resource: "namespaces", Name: "shop"}
	c.Declare([]*v1alpha1.CustomMetric{m}, nil)
	r := query.ObjectRequest{Resource: schema.GroupResource{Resource: "namespaces"}, Names: []string{"shop"}, Metric: "m"}
	if mq, _, err := c.ObjectQuery(r); err != nil || mq.Object != "shop" {
		t.Errorf("%+v, %v", mq, err)
	}
	r.Names = []string{"other"}
	if _, _, err := c.ObjectQuery(r); !apierrors.IsNotFound(err) {
		t.Errorf("another namespace: %v", err)
	}
}

// What did not change is not compiled again.
func TestDeclareKeepsWhatIsTheSame(t *testing.T) {
	c := newCatalog(t, backend(nil, nil))
	m := externalMetric("shop", "m", "sum(up)")
	c.Declare(nil, []*v1alpha1.ExternalMetric{m})
	before := c.declaredAll[0]
	changed := m.DeepCopy()
	changed.Status.Value = "5"
	c.Declare(nil, []*v1alpha1.ExternalMetric{changed})
	if c.declaredAll[0] != before {
		t.Error("a change of status compiled it again")
	}
	changed = changed.DeepCopy()
	changed.Generation, changed.Spec.Query = 2, "sum(down)"
	c.Declare(nil, []*v1alpha1.ExternalMetric{changed})
	if d := c.Declared()[0]; d.Generation != 2 || !strings.Contains(d.MetricQuery.Query.Expression, "down") {
		t.Errorf("a change of spec did not: %+v", d)
	}
}

// A CRD that is installed later is found without a restart, by rules and declarations.
func TestACRDInstalledLater(t *testing.T) {
	world := &cluster{index: index()}
	c := NewCatalog(world, clock.RealClock{})
	c.Apply(backend([]v1alpha1.MetricRule{{SeriesQuery: "ripeness", Resources: v1alpha1.RuleResources{Overrides: map[string]v1alpha1.RuleResource{
		"cheese": {Group: "cheese.io", Resource: "cheese"}, "namespace": {Resource: "namespace"},
	}}}}, nil))
	c.SetSeries(c.Selections()[0], []series.Series{seriesOf("ripeness", "namespace", "cheese")})
	m := customMetric("shop", "m", "sum(up)")
	m.Spec.DescribedObject = v1alpha1.DescribedObjects{Group: "cheese.io", Resource: "cheeses", NameLabel: "cheese"}
	c.Declare([]*v1alpha1.CustomMetric{m}, nil)
	ask := func(metric string) error {
		_, _, err := c.ObjectQuery(query.ObjectRequest{Resource: schema.GroupResource{Group: "cheese.io", Resource: "cheeses"}, Namespace: "shop", Names: []string{"brie"}, Metric: metric})
		return err
	}
	if err := ask("ripeness"); !apierrors.IsNotFound(err) || world.wanted == 0 {
		t.Errorf("before the CRD: %v, asked for %d times", err, world.wanted)
	}
	if h := c.Health(); h.Rules[0].Reason != ReasonUnknownResource || c.Declared()[0].Reason != ReasonUnknownResource {
		t.Errorf("before the CRD: %+v, %+v", h, c.Declared())
	}
	world.index = index(named("cheeses", "cheese", "Cheese", true))
	c.SetResources(world.index)
	for _, metric := range []string{"ripeness", "m"} {
		if err := ask(metric); err != nil {
			t.Errorf("%s: %v", metric, err)
		}
	}
	if h := c.Health(); len(h.Rules) != 0 || c.Declared()[0].Reason != "" {
		t.Errorf("after it: %+v, %+v", h, c.Declared())
	}
}

// TestLargeRegexps: however many metrics of a team have regular expressions that would take seconds
// to compile, they are refused, and those of others are in effect.
func TestLargeRegexps(t *testing.T) {
	all := []*v1alpha1.ExternalMetric{externalMetric("shop", "rate", `rate(up{path=~"/api/[^/]+"}[5m])`)}
	for i := range 50 {
		piece := []string{"x{1000}", `\pL`, "(?i)[B-𞤀]"}[i%3]
		all = append(all, externalMetric("hostile", fmt.Sprint("m", i), `sum(up{a=~'`+strings.Repeat(strings.ReplaceAll(piece, `\`, `\\`), 150)+`'})`))
	}
	c := newCatalog(t, backend(nil, nil))
	c.Declare(nil, all)
	for _, d := range c.Declared() {
		if want := map[bool]string{true: ReasonInvalidQuery}[d.Namespace == "hostile"]; d.Reason != want || want != "" && !strings.Contains(d.Message, "regular expressions") {
			t.Errorf("%s %s: %q %s, want %q", d.Namespace, d.Name, d.Reason, d.Message, want)
		}
	}
	mq, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "rate"})
	if err != nil || mq.Window != 5*time.Minute {
		t.Errorf("the other's window is %s, error %v", mq.Window, err)
	}
}
