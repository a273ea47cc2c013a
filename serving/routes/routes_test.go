// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	external = v1alpha1.ExternalMetricsGroup
	custom   = v1alpha1.CustomMetricsGroup
)

// sources are one of each kind.
var sources = []v1alpha1.SourceSpec{
	{Name: "main", Prometheus: &v1alpha1.PrometheusSource{}},
	{Name: "keda", MetricsAPI: &v1alpha1.MetricsAPISource{Group: external}},
	{Name: "datadog", MetricsAPI: &v1alpha1.MetricsAPISource{Group: external}},
	{Name: "adapter", MetricsAPI: &v1alpha1.MetricsAPISource{Group: custom}},
}

// ownMetrics defines the metrics whose names begin with own.
type ownMetrics struct{}

func (ownMetrics) ObjectMetrics(int) ([]query.ObjectMetric, int) { return nil, 0 }

func (ownMetrics) ExternalMetrics(int) ([]string, int) { return nil, 0 }

func (ownMetrics) ExternalName(_, requested string) string { return requested }

func (ownMetrics) ObjectQuery(query.ObjectRequest) (query.MetricQuery, query.ObjectMetric, error) {
	return query.MetricQuery{Origin: "own"}, query.ObjectMetric{Name: "own"}, nil
}

func (ownMetrics) ExternalQuery(query.ExternalRequest) (query.MetricQuery, error) {
	return query.MetricQuery{Origin: "own"}, nil
}

func (ownMetrics) DefinesObjectMetric(r query.ObjectRequest) bool {
	return strings.HasPrefix(r.Metric, "own")
}

func (ownMetrics) DefinesExternalMetric(_, metric string) bool {
	return strings.HasPrefix(metric, "own")
}

// newRouter has the routes in both sections; in that of custom metrics all sources are adapter.
func newRouter(routes ...v1alpha1.MetricRoute) *Router {
	r := NewRouter(ownMetrics{}, nil)
	spec := &v1alpha1.MetricsBackendSpec{Sources: sources, ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Routes: routes}, CustomMetrics: &v1alpha1.CustomMetricsSpec{}}
	for _, route := range routes {
		if route.Source != "" {
			route.Source = "adapter"
		}
		spec.CustomMetrics.Routes = append(spec.CustomMetrics.Routes, route)
	}
	r.Apply(spec)
	return r
}

// to returns a route to a source, or to own.
func to(source string, match v1alpha1.RouteMatch) v1alpha1.MetricRoute {
	if source == "own" {
		return v1alpha1.MetricRoute{Own: &v1alpha1.OwnMetrics{}, Match: match}
	}
	return v1alpha1.MetricRoute{Source: source, Match: match}
}

func selector(t testing.TB, text string) labels.Selector {
	t.Helper()
	s, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMatch: which requests a route matches.
func TestMatch(t *testing.T) {
	app := func(values ...string) v1alpha1.RouteMatch {
		return v1alpha1.RouteMatch{Selector: &v1alpha1.RouteSelector{Key: "app", Values: values}}
	}
	for name, test := range map[string]struct {
		group v1alpha1.MetricsAPIGroup
		match v1alpha1.RouteMatch
		// yes and no are requests as NAMESPACE|METRIC|SELECTOR; without a selector it is nil.
		yes, no []string
	}{
		"all":             {external, v1alpha1.RouteMatch{}, []string{"shop|depth", "*|a/b|", "|x|app=web"}, nil},
		"names":           {custom, v1alpha1.RouteMatch{Metrics: []string{"Hits", "age"}}, []string{"shop|Hits", "|age"}, []string{"shop|hits", "shop|Hits2"}},
		"names in a case": {external, v1alpha1.RouteMatch{Metrics: []string{"Hits"}}, []string{"shop|hits", "shop|HITS"}, []string{"shop|hit"}},
		"a pattern":       {custom, v1alpha1.RouteMatch{MetricRegexp: "a|ab|s[0-9]-.*"}, []string{"|a", "|ab", "|s0-x", "|s0-"}, []string{"|abc", "|xa", "|A", "|S0-x", "|s0"}},
		"a pattern in a case, with flags of its own": {external, v1alpha1.RouteMatch{MetricRegexp: "s[0-9]-.*|(?-i:Big)"}, []string{"|S0-X", "|Big"}, []string{"|big", "|xs0-", "|s0-\nBig"}},
		"a pattern that matches nothing":             {external, v1alpha1.RouteMatch{MetricRegexp: "x*"}, []string{"|", "|xX"}, []string{"|xy"}},
		"namespaces":                                 {external, v1alpha1.RouteMatch{Namespaces: []string{"shop", "bank"}}, []string{"shop|x", "bank|x"}, []string{"|x", "*|x", "Shop|x"}},
		"a key":                                      {external, app(), []string{"|x|app", "|x|app=web", "|x|b,app notin (a)", "|x|!app"}, []string{"|x", "|x|", "|x|apps=web", "|x|b=app"}},
		"values":                                     {external, app("web", "db"), []string{"|x|app=web", "|x|app==db,b", "|x|app in (web,db)", "|x|app!=x,app in (db)"}, []string{"|x", "|x|", "|x|app", "|x|!app", "|x|app!=web", "|x|app notin (web)", "|x|app in (web,x)", "|x|app=x", "|x|b=web"}},
		"all of it": {external, v1alpha1.RouteMatch{Metrics: []string{"x"}, Namespaces: []string{"shop"}, Selector: &v1alpha1.RouteSelector{Key: "app"}},
			[]string{"shop|x|app"}, []string{"bank|x|app", "shop|y|app", "shop|x|b"}},
	} {
		t.Run(name, func(t *testing.T) {
			source := map[v1alpha1.MetricsAPIGroup]string{external: "keda", custom: "adapter"}[test.group]
			all := newRoutes([]v1alpha1.MetricRoute{to(source, test.match)}, "spec", test.group, sources)
			if len(all) != 2 || all[1].problem != nil {
				t.Fatalf("routes %+v", all)
			}
			for text, want := range merged(test.yes, test.no) {
				parts := strings.Split(text, "|")
				r := request{namespace: parts[0], metric: parts[1]}
				if len(parts) > 2 {
					r.series = selector(t, parts[2])
				}
				if got := all[1].matches(r); got != want {
					t.Errorf("%q: %t", text, got)
				}
			}
		})
	}
}

func merged(yes, no []string) map[string]bool {
	all := map[string]bool{}
	for _, text := range yes {
		all[text] = true
	}
	for _, text := range no {
		all[text] = false
	}
	return all
}

// TestOrder: the first route that matches answers, own only what it defines, and first unless it has another place.
func TestOrder(t *testing.T) {
	x := v1alpha1.RouteMatch{Metrics: []string{"own_x", "x"}}
	for name, test := range map[string]struct {
		routes []v1alpha1.MetricRoute
		// want is the source by metric, and what is remarked.
		want map[string]string
	}{
		"no routes":      {nil, map[string]string{"own_x": "own", "x": "own"}},
		"own first":      {[]v1alpha1.MetricRoute{to("keda", v1alpha1.RouteMatch{}), to("datadog", v1alpha1.RouteMatch{})}, map[string]string{"own_x": "own [routes[0] leads routes[1] leads]", "x": "keda [routes[1] leads]"}},
		"own last":       {[]v1alpha1.MetricRoute{to("keda", x), to("own", v1alpha1.RouteMatch{})}, map[string]string{"own_x": "keda [own]", "own_y": "own", "y": "own"}},
		"own in between": {[]v1alpha1.MetricRoute{to("keda", x), to("own", v1alpha1.RouteMatch{}), to("datadog", v1alpha1.RouteMatch{})}, map[string]string{"own_x": "keda [own routes[2] leads]", "own_y": "own [routes[2] leads]", "y": "datadog"}},
		"own for some":   {[]v1alpha1.MetricRoute{to("own", x), to("keda", v1alpha1.RouteMatch{})}, map[string]string{"own_x": "own [routes[1] leads]", "own_y": "keda", "x": "keda"}},
		"none matches":   {[]v1alpha1.MetricRoute{to("keda", x)}, map[string]string{"y": "own"}},
		"invalid":        {[]v1alpha1.MetricRoute{to("keda", v1alpha1.RouteMatch{MetricRegexp: "("}), to("gone", v1alpha1.RouteMatch{}), to("datadog", x)}, map[string]string{"x": "datadog", "y": "own"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, got, customs := newRouter(test.routes...), map[string]string{}, map[string]string{}
			for metric := range test.want {
				mq, err := r.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: metric, Explain: true})
				if err != nil || mq.Passes != (mq.Query.Source != "") {
					t.Errorf("%s: %+v %v", metric, mq, err)
				}
				got[metric] = answers(mq)
				unexplained, _ := r.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: metric})
				if mq.Remarks = nil; !mq.Equal(&unexplained) {
					t.Errorf("%s: %+v unless it is explained", metric, unexplained)
				}
				mq, _, _ = r.ObjectQuery(query.ObjectRequest{Namespace: "shop", Metric: metric, Explain: true})
				customs[metric] = strings.ReplaceAll(answers(mq), "adapter", strings.Fields(test.want[metric])[0])
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("external (-want +got):\n%s", diff)
			}
			if name != "invalid" { // There is no source that is gone.
				if diff := cmp.Diff(test.want, customs); diff != "" {
					t.Errorf("custom (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// answers says what answers a query, and what is remarked of others.
func answers(mq query.MetricQuery) string {
	text := mq.Query.Source
	if text == "" {
		text = mq.Origin
	}
	var remarks []string
	for _, remark := range mq.Remarks {
		switch before, _, leads := strings.Cut(remark, " this metric to the source "); {
		case leads:
			remarks = append(remarks, before[strings.LastIndex(before, ".")+1:])
		case strings.Contains(remark, "(own)"):
			remarks = append(remarks, "own")
		}
	}
	if remarks != nil {
		text += fmt.Sprintf(" %v", remarks)
	}
	return text
}

// TestUnreachable: a route is reported to which no request comes.
func TestUnreachable(t *testing.T) {
	names := func(names ...string) v1alpha1.RouteMatch { return v1alpha1.RouteMatch{Metrics: names} }
	pattern := func(text string) v1alpha1.RouteMatch { return v1alpha1.RouteMatch{MetricRegexp: text} }
	in := func(namespaces ...string) v1alpha1.RouteMatch { return v1alpha1.RouteMatch{Namespaces: namespaces} }
	label := func(key string, values ...string) v1alpha1.RouteMatch {
		return v1alpha1.RouteMatch{Selector: &v1alpha1.RouteSelector{Key: key, Values: values}}
	}
	for name, test := range map[string]struct {
		first, second v1alpha1.RouteMatch
		want          bool
	}{
		"all before all":               {names(), names(), true},
		"all before some":              {names(), v1alpha1.RouteMatch{MetricRegexp: "a", Namespaces: []string{"b"}, Selector: &v1alpha1.RouteSelector{Key: "c"}}, true},
		"some before all":              {names("a"), names(), false},
		"more names":                   {names("A", "b"), names("a"), true},
		"fewer names":                  {names("a"), names("a", "b"), false},
		"a pattern of names":           {pattern("A.*"), names("a1", "a2"), true},
		"a pattern of some":            {pattern("a.*"), names("a1", "b"), false},
		"the same pattern":             {pattern("a.*"), pattern("a.*"), true},
		"another pattern":              {pattern("a.*"), pattern("ab.*"), false},
		"more namespaces":              {in("a", "b"), in("a"), true},
		"fewer namespaces":             {in("a"), in("a", "b"), false},
		"namespaces before any":        {in("a"), names(), false},
		"any value":                    {label("a"), label("a", "b"), true},
		"more values":                  {label("a", "b", "c"), label("a", "c"), true},
		"fewer values":                 {label("a", "b"), label("a", "b", "c"), false},
		"values before any":            {label("a", "b"), label("a"), false},
		"another key":                  {label("a"), label("b"), false},
		"names are of some namespaces": {v1alpha1.RouteMatch{Metrics: []string{"a"}, Namespaces: []string{"b"}}, names("a"), false},
	} {
		t.Run(name, func(t *testing.T) {
			problems, count, invalid := problemsOf(sources, to("keda", test.first), to("datadog", test.second))
			var want []string
			if test.want {
				want = []string{"spec.externalMetrics.routes[1] Warning Unreachable: no request comes to this route, since spec.externalMetrics.routes[0] matches all"}
			}
			if diff := cmp.Diff(want, problems); diff != "" || count != 2 || invalid != 0 {
				t.Errorf("%d routes, %d invalid (-want +got):\n%s", count, invalid, diff)
			}
		})
	}
	if problems, _, _ := problemsOf(sources, to("own", names()), to("keda", names()), to("keda", pattern("(")), to("keda", names("a"))); len(problems) != 2 || !strings.Contains(problems[1], "routes[3] Warning Unreachable: no request comes to this route, since spec.externalMetrics.routes[1]") {
		t.Errorf("after own and invalid ones: %q", problems)
	}
}

// problemsOf returns the problems of routes for external metrics, without what follows in their messages.
func problemsOf(sources []v1alpha1.SourceSpec, routes ...v1alpha1.MetricRoute) (texts []string, count, invalid int) {
	r := NewRouter(ownMetrics{}, nil)
	r.Apply(&v1alpha1.MetricsBackendSpec{Sources: sources, ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Routes: routes}})
	problems, count, invalid := r.Health()
	for _, p := range problems {
		text, _, _ := strings.Cut(fmt.Sprintf("%s %s %s: %s", p.Path, p.State, p.Reason, p.Message), " that it would")
		texts = append(texts, text)
	}
	return texts, count, invalid
}

// TestInvalidRoutes: a route that cannot match anything is reported and matches nothing.
func TestInvalidRoutes(t *testing.T) {
	pattern := func(text string) v1alpha1.MetricRoute { return to("keda", v1alpha1.RouteMatch{MetricRegexp: text}) }
	for name, test := range map[string]struct {
		route v1alpha1.MetricRoute
		want  string
	}{
		"unknown":            {to("gone", v1alpha1.RouteMatch{}), `UnknownSource: spec.sources has no "gone"`},
		"of the other group": {to("adapter", v1alpha1.RouteMatch{}), `UnknownSource: the source "adapter" is not another implementation of external.metrics.k8s.io`},
		"no implementation":  {to("main", v1alpha1.RouteMatch{}), `UnknownSource: the source "main" is not another implementation`},
		"no pattern":         {pattern("("), "InvalidRoute: metricRegexp: error parsing regexp: missing closing ): "},
		"a long pattern":     {pattern("(a{30}){30}{30}"), "InvalidRoute: metricRegexp: "},
		"nested patterns":    {pattern("((a{10}){10}){10}{10}"), "InvalidRoute: metricRegexp: "},
		"many letters":       {pattern(`\pL{1000}\pL{1000}`), "InvalidRoute: metricRegexp: the regular expressions are too large"},
		"many classes":       {pattern(strings.Repeat(`\pL`, 80)), "InvalidRoute: metricRegexp: the regular expressions have too many Unicode classes"},
		"instructions":       {pattern("a{1000}b{1000}c"), "InvalidRoute: metricRegexp: the regular expressions are too large, as they compile to more than 2000"},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			problems, count, invalid := problemsOf(sources, test.route, to("datadog", v1alpha1.RouteMatch{}))
			if len(problems) != 1 || !strings.HasPrefix(problems[0], "spec.externalMetrics.routes[0] Invalid "+test.want) || count < 1 || invalid != 1 {
				t.Errorf("%d routes, %d invalid: %q, want %s", count, invalid, problems, test.want)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("it takes %s to find out", took)
			}
			if mq, _ := newRouter(test.route).ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "a"}); mq.Passes {
				t.Errorf("it matches: %+v", mq)
			}
		})
	}
}

// TestQueries: what another implementation is asked, how often, and for whom.
func TestQueries(t *testing.T) {
	r := newRouter(to("keda", v1alpha1.RouteMatch{}))
	pods, namespaces, nodes := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "namespaces"}, schema.GroupResource{Resource: "nodes"}
	asked := func(source, expression, tenant string) query.Query {
		return query.Query{Source: source, Expression: expression, Interval: time.Second, Tenant: tenant, Live: true}
	}
	watched := asked("keda", "/namespaces/shop/x", "shop")
	watched.Interval, watched.Live = 15*time.Second, false
	for name, test := range map[string]struct {
		external query.ExternalRequest
		object   query.ObjectRequest
		want     query.Query
	}{
		"slashes":           {query.ExternalRequest{Namespace: "shop", Metric: "cloud/x y"}, query.ObjectRequest{}, asked("keda", "/namespaces/shop/cloud%5C%7Cx%20y", "shop")},
		"all namespaces":    {query.ExternalRequest{Namespace: "*", Metric: "s0-a@b:c%2F?#"}, query.ObjectRequest{}, asked("keda", "/namespaces/%2A/s0-a@b:c%252F%3F%23", "")},
		"a selector":        {query.ExternalRequest{Namespace: "shop", Metric: "x", Series: selector(t, "a.b/c=d,e in (f,g),!h")}, query.ObjectRequest{}, asked("keda", "/namespaces/shop/x?labelSelector=a.b%2Fc%3Dd%2Ce+in+%28f%2Cg%29%2C%21h", "shop")},
		"an empty selector": {query.ExternalRequest{Namespace: "shop", Metric: "x", Series: labels.Everything()}, query.ObjectRequest{}, asked("keda", "/namespaces/shop/x", "shop")},
		"a watch":           {query.ExternalRequest{Namespace: "shop", Metric: "x", Watch: true}, query.ObjectRequest{}, watched},
		"an object":         {query.ExternalRequest{}, query.ObjectRequest{Resource: pods, Namespace: "shop", Names: []string{"web 1"}, Metric: "hits"}, asked("adapter", "/namespaces/shop/pods/web%201/hits", "shop")},
		"all objects": {query.ExternalRequest{}, query.ObjectRequest{Resource: schema.GroupResource{Group: "apps", Resource: "deployments"}, Namespace: "shop", Metric: "hits", Objects: selector(t, "app=web"), Series: selector(t, "code!=200")},
			asked("adapter", "/namespaces/shop/deployments.apps/%2A/hits?labelSelector=app%3Dweb&metricLabelSelector=code%21%3D200", "shop")},
		"one that is selected":   {query.ExternalRequest{}, query.ObjectRequest{Resource: pods, Namespace: "shop", Names: []string{"web-1"}, Selected: true, Metric: "hits"}, asked("adapter", "/namespaces/shop/pods/%2A/hits", "shop")},
		"without a namespace":    {query.ExternalRequest{}, query.ObjectRequest{Resource: nodes, Names: []string{"n"}, Metric: "load"}, asked("adapter", "/nodes/n/load", "")},
		"all of them":            {query.ExternalRequest{}, query.ObjectRequest{Resource: nodes, Metric: "load"}, asked("adapter", "/nodes/%2A/load", "")},
		"of a namespace":         {query.ExternalRequest{}, query.ObjectRequest{Resource: namespaces, Names: []string{"shop"}, Metric: "age"}, asked("adapter", "/namespaces/shop/metrics/age", "shop")},
		"of all namespaces":      {query.ExternalRequest{}, query.ObjectRequest{Resource: namespaces, Metric: "age"}, asked("adapter", "/namespaces/%2A/metrics/age", "")},
		"of selected namespaces": {query.ExternalRequest{}, query.ObjectRequest{Resource: namespaces, Metric: "age", Objects: selector(t, "a")}, asked("adapter", "/namespaces/%2A/metrics/age?labelSelector=a", "")},
	} {
		t.Run(name, func(t *testing.T) {
			mq, err := r.ExternalQuery(test.external)
			if test.object.Metric != "" {
				mq, _, err = r.ObjectQuery(test.object)
			}
			if diff := cmp.Diff(test.want, mq.Query); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// FuzzPath: an API server reads from the path what a client asked for.
func FuzzPath(f *testing.F) {
	f.Add("shop", "pods", "web-1", "hits", "app", "web")
	f.Add("*", "deployments.apps", "*", "cloud/a?b%2F#c d", "a.b/c", "x-y")
	f.Add("a@b:c", "nodes", "..a", `\|`, "k", "")
	resolver := &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("apis", "api"), GrouplessAPIPrefixes: sets.NewString("api")}
	r := newRouter(to("keda", v1alpha1.RouteMatch{}))
	f.Fuzz(func(t *testing.T, namespace, resource, name, metric, key, value string) {
		chosen := labels.Set{key: value}.AsSelector()
		if _, err := labels.Parse(chosen.String()); err != nil {
			return // the API refuses it
		}
		// What is a segment here came in as one.
		for _, segment := range []string{namespace, resource, name, metric} {
			if segment == "" || segment == "." || segment == ".." {
				return
			}
		}
		if strings.Contains(namespace+resource+name, "/") || slices.Contains([]string{"watch", "proxy", "namespaces"}, resource) || slices.Contains([]string{"status", "finalize", "own"}, metric) || strings.HasPrefix(metric, "own") {
			return
		}
		ask := func(group, expression, parameter string) *apirequest.RequestInfo {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://keda/apis/"+group+"/v1beta1"+expression, nil)
			if err != nil {
				t.Fatalf("%q: %v", expression, err)
			}
			if got := req.URL.Query().Get(parameter); got != chosen.String() {
				t.Errorf("%q: selector %q, want %q", expression, got, chosen)
			}
			info, err := resolver.NewRequestInfo(req)
			if err != nil {
				t.Fatalf("%q: %v", expression, err)
			}
			return info
		}
		mq, _ := r.ExternalQuery(query.ExternalRequest{Namespace: namespace, Metric: metric, Series: chosen})
		info := ask(string(external), mq.Query.Expression, "labelSelector")
		if diff := cmp.Diff([]string{namespace, strings.ReplaceAll(metric, "/", `\|`)}, []string{info.Namespace, info.Resource}); diff != "" {
			t.Errorf("external (-want +got):\n%s", diff)
		}
		metric = strings.ReplaceAll(metric, "/", "")
		if metric == "" || metric == "." || metric == ".." || strings.HasPrefix(metric, "own") {
			return
		}
		mq, _, _ = r.ObjectQuery(query.ObjectRequest{Resource: schema.ParseGroupResource(resource), Namespace: namespace, Names: []string{name}, Metric: metric, Series: chosen})
		info = ask(string(custom), mq.Query.Expression, "metricLabelSelector")
		if diff := cmp.Diff([]string{namespace, schema.ParseGroupResource(resource).String(), name, metric}, []string{info.Namespace, info.Resource, info.Name, info.Subresource}); diff != "" {
			t.Errorf("custom (-want +got):\n%s", diff)
		}
		mq, _, _ = r.ObjectQuery(query.ObjectRequest{Resource: namespaces, Names: []string{namespace}, Metric: metric, Series: chosen})
		info = ask(string(custom), mq.Query.Expression, "metricLabelSelector")
		if diff := cmp.Diff([]string{namespace, "metrics", metric}, []string{info.Namespace, info.Resource, info.Name}); diff != "" {
			t.Errorf("of a namespace (-want +got):\n%s", diff)
		}
	})
}

// TestLaterRoutes: a route to a source that is not before own changes no answer for a metric that own defines.
func TestLaterRoutes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	match := func() (m v1alpha1.RouteMatch) {
		switch random.IntN(3) {
		case 0:
			m.Metrics = []string{pick("own_a", "own_b", "a", "b")}
		case 1:
			m.MetricRegexp = pick("own.*", ".*a", "(", "")
		}
		if random.IntN(2) == 0 {
			m.Namespaces = []string{pick("shop", "bank")}
		}
		if random.IntN(3) == 0 {
			m.Selector = &v1alpha1.RouteSelector{Key: "app"}
		}
		return m
	}
	requests := []query.ExternalRequest{{Namespace: "shop", Metric: "own_a"}, {Namespace: "bank", Metric: "own_b", Series: selector(t, "app=web")}, {Namespace: "*", Metric: "own_c"}}
	for range 2000 {
		var routes []v1alpha1.MetricRoute
		for range random.IntN(5) {
			routes = append(routes, to(pick("keda", "datadog", "gone"), match()))
		}
		first := 0
		if random.IntN(2) == 0 {
			at := random.IntN(len(routes) + 1)
			routes, first = slices.Insert(routes, at, to("own", v1alpha1.RouteMatch{})), at+1
		}
		more := slices.Insert(slices.Clone(routes), first+random.IntN(len(routes)+1-first), to(pick("keda", "datadog"), match()))
		before, after := newRouter(routes...), newRouter(more...)
		for _, r := range requests {
			a, _ := before.ExternalQuery(r)
			b, _ := after.ExternalQuery(r)
			o := query.ObjectRequest{Namespace: r.Namespace, Metric: r.Metric, Series: r.Series}
			c, _, _ := before.ObjectQuery(o)
			d, _, _ := after.ObjectQuery(o)
			if !a.Equal(&b) || !c.Equal(&d) {
				t.Fatalf("%+v: %+v and %+v, then %+v and %+v\nwith %+v", r, a, c, b, d, more)
			}
		}
	}
}
