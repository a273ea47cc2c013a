// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// parseBackend is a spec with the rules of one API.
func parseBackend(t *testing.T, external bool, texts ...string) *v1alpha1.MetricsBackendSpec {
	t.Helper()
	var rules []v1alpha1.MetricRule
	for _, text := range texts {
		rules = append(rules, parse(t, text))
	}
	if external {
		return backend(nil, rules)
	}
	return backend(rules, nil)
}

var (
	ended = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	later = ended.Add(6 * time.Minute)
)

// TestMetricsWithoutSeries: the error for a metric without series tells which rule makes it, and
// whether there ever were series.
func TestMetricsWithoutSeries(t *testing.T) {
	const (
		since  = ` had series until about 2026-03-04T05:06:07Z, and has none now: `
		check  = `: check what exports them`
		remedy = check + `; if 0 is right without series, declare the metric in an ExternalMetric whose query ends in "or vector(0)"`
	)
	for name, test := range map[string]struct {
		external bool
		rules    []string
		// before are the series of each rule, which then end.
		before []series.Series
		metric string
		want   string
	}{
		"an external metric that ended": {true, []string{`{seriesQuery: lag}`}, []series.Series{seriesOf("lag", "namespace")}, "lag",
			`the metric "lag"` + since + `spec.externalMetrics.rules[0] makes it of the series lag` + remedy},
		"as an autoscaler asks for it": {true, []string{`{seriesQuery: other}`, `{seriesQuery: '{__name__=~".+"}', seriesFilters: [{is: Lag}], name: {as: "Q$0"}}`}, []series.Series{seriesOf("Lag", "namespace")}, "qlag",
			`the metric "qlag"` + since + `spec.externalMetrics.rules[1] makes it of the series Lag` + remedy},
		"a metric of pods that ended": {false, []string{`{seriesQuery: lag, resources: {template: <<.Resource>>}}`}, []series.Series{seriesOf("lag", "namespace", "pod")}, "lag",
			`the metric "lag"` + since + `spec.customMetrics.rules[0] makes it of the series lag` + check},
		"a metric of something else ended": {false, []string{`{seriesQuery: '{__name__=~"l.+"}', resources: {template: <<.Resource>>}}`}, []series.Series{seriesOf("lag", "namespace", "service")}, "lag",
			`no rule and no CustomMetric makes the metric "lag" of pods`},
		"a series that never was": {true, []string{`{seriesQuery: other}`, `{seriesQuery: 'lag{queue!=""}', name: {matches: "^(.*)$", as: "${1}_Sum"}}`}, nil, "lag_sum",
			`spec.externalMetrics.rules[1] makes the metric "lag_sum", but its seriesQuery matches no series` + remedy},
		"a metric of pods that never was": {false, []string{`{seriesQuery: lag, resources: {template: <<.Resource>>}}`}, nil, "lag",
			`spec.customMetrics.rules[0] makes the metric "lag", but its seriesQuery matches no series` + check},
		"series of any name that never were": {true, []string{`{seriesQuery: '{__name__=~"l.*"}'}`}, nil, "lag",
			`no rule makes the metric "lag", and no ExternalMetric does in namespace "shop"`},
		"a series that the filters leave out": {true, []string{`{seriesQuery: lag, seriesFilters: [{is: other}]}`}, nil, "lag",
			`no rule makes the metric "lag", and no ExternalMetric does in namespace "shop"`},
		"a rule of other names": {true, []string{`{seriesQuery: lag, name: {as: other}}`}, nil, "lag",
			`no rule makes the metric "lag", and no ExternalMetric does in namespace "shop"`},
		"a rule that is invalid": {true, []string{`{seriesQuery: lag, name: {matches: "("}}`}, nil, "lag",
			`no rule makes the metric "lag", and no ExternalMetric does in namespace "shop"; without metrics because of errors: spec.externalMetrics.rules[0] (InvalidName)`},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCatalog(t, parseBackend(t, test.external, test.rules...))
			for _, s := range c.Selections() {
				c.SetFound(s, series.Found{Time: ended, Series: test.before})
				c.SetFound(s, series.Found{Time: later, Ended: ended})
			}
			_, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: test.metric})
			if !test.external {
				_, _, err = c.ObjectQuery(pods("shop", test.metric, "a"))
			}
			requireLike(t, err, test.want)
		})
	}
}

// TestWithoutSeriesWhileASourceFails: what a rule is known to make is not hidden by another rule whose
// series are not known; any other metric may be that one's.
func TestWithoutSeriesWhileASourceFails(t *testing.T) {
	for _, external := range []bool{true, false} {
		const resources = `resources: {template: <<.Resource>>}`
		c := NewCatalog(&cluster{index: index()}, clock.RealClock{})
		c.Apply(parseBackend(t, external, `{seriesQuery: lag, `+resources+`}`, `{seriesQuery: never, `+resources+`}`, `{seriesQuery: '{__name__=~".+",x=""}', `+resources+`}`))
		path := partPath[external] + ".rules"
		lag, never := Selection{"prometheus", "lag"}, Selection{"prometheus", "never"}
		c.SetFound(lag, series.Found{Time: ended, Series: []series.Series{seriesOf("lag", "namespace", "pod")}})
		c.SetFound(lag, series.Found{Time: later, Ended: ended})
		c.SetFound(never, series.Found{Time: later})
		c.SetSeriesFailure(Selection{"prometheus", `{__name__=~".+",x=""}`}, errors.New("connection refused"))
		for metric, want := range map[string]string{
			"lag":   `the metric "lag" had series until about`,
			"never": path + `[1] makes the metric "never", but its seriesQuery matches no series`,
			"other": `no rule is known to make the metric "other", but ` + path + `[2] may make it, and its series are not known: connection refused`,
		} {
			_, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: metric})
			if !external {
				_, _, err = c.ObjectQuery(pods("shop", metric, "a"))
			}
			if err == nil || !strings.HasPrefix(err.Error(), want) || apierrors.IsServiceUnavailable(err) != (metric == "other") {
				t.Errorf("%s: %v", metric, err)
			}
		}
	}
}

// TestNamesWithoutSeries: policies decide about the name of a metric also while it has no series, and
// before they are known.
func TestNamesWithoutSeries(t *testing.T) {
	c := NewCatalog(&cluster{index: index()}, clock.RealClock{})
	c.Apply(parseBackend(t, true, `{seriesQuery: '{__name__=~"L.+"}'}`, `{seriesQuery: Never}`))
	lag := c.Selections()[1]
	if lag.Selector == "Never" {
		lag = c.Selections()[0]
	}
	c.SetFound(lag, series.Found{Time: ended, Series: []series.Series{seriesOf("Lag", "namespace")}})
	c.SetFound(lag, series.Found{Time: later, Ended: ended})
	for asked, want := range map[string]string{"lag": "Lag", "never": "Never", "other": "other"} {
		if got := c.ExternalName("shop", asked); got != want {
			t.Errorf("%s means %s, want %s", asked, got, want)
		}
	}
	_, err := c.ExternalQuery(query.ExternalRequest{Namespace: query.AllNamespaces, Metric: "Lag"})
	if err == nil || !strings.HasSuffix(err.Error(), "makes it of the series Lag: check what exports them") {
		t.Errorf("in all namespaces, where no ExternalMetric is read: %v", err)
	}
}

// TestEndedSeriesInStatus: once all series of a rule have ended, the status says so.
func TestEndedSeriesInStatus(t *testing.T) {
	c := newCatalog(t, parseBackend(t, true, `{seriesQuery: '{__name__=~"lag_.+"}'}`))
	s := c.Selections()[0]
	a, b := seriesOf("lag_a", "namespace"), seriesOf("lag_b", "namespace")
	for i, step := range []struct {
		found series.Found
		want  []string
	}{
		{series.Found{Time: ended, Series: []series.Series{a, b}}, nil},
		{series.Found{Time: later, Series: []series.Series{b}, Ended: ended.Add(-time.Minute)}, nil},
		{series.Found{Time: later.Add(time.Minute), Ended: ended}, []string{"NoSeries no series match now: try seriesQuery"}},
		{series.Found{Time: later.Add(time.Hour), Series: []series.Series{b}, Ended: ended}, nil},
	} {
		c.SetFound(s, step.found)
		var got []string
		for _, h := range c.Health().Rules {
			message, _, _ := strings.Cut(h.Message, " at the source")
			got = append(got, h.Reason+" "+message)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

// TestEndedMetricsOfAnotherRule: a rule that was changed does not make what it made before.
func TestEndedMetricsOfAnotherRule(t *testing.T) {
	c := newCatalog(t, parseBackend(t, true, `{seriesQuery: '{__name__=~".+"}'}`))
	found := []series.Series{seriesOf("lag", "namespace")}
	c.SetFound(c.Selections()[0], series.Found{Time: ended, Series: found})
	c.SetFound(c.Selections()[0], series.Found{Time: later, Ended: ended})
	c.Apply(parseBackend(t, true, `{seriesQuery: '{__name__=~".+"}', name: {as: "other_$0"}}`))
	c.SetFound(c.Selections()[0], series.Found{Time: later})
	_, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "lag"})
	requireLike(t, err, `no rule makes the metric "lag", and no ExternalMetric does in namespace "shop"`)
}

// TestEndedMetricsAreBounded: however many metrics a scraped workload ends, and however long their
// names are.
func TestEndedMetricsAreBounded(t *testing.T) {
	for _, length := range []int{10, 250} {
		c := newCatalog(t, parseBackend(t, true, `{seriesQuery: '{__name__=~".+"}'}`))
		var all []series.Series
		for i := range 5000 {
			all = append(all, seriesOf(fmt.Sprintf("m%0*d", length-1, i), "namespace"))
		}
		c.SetFound(c.Selections()[0], series.Found{Time: ended, Series: all})
		c.SetFound(c.Selections()[0], series.Found{Time: later, Ended: ended})
		if n := c.ended.Len(); n < 800 || n > 1000 {
			t.Errorf("%d ended metrics with names of %d bytes are kept", n, length)
		}
	}
}

// TestUnreadableMetrics: what no autoscaler can read has a remark as soon as the series are known.
func TestUnreadableMetrics(t *testing.T) {
	const podOnly = `resources: {overrides: {pod: {resource: pod}}}`
	with, without := seriesOf("lag", "namespace", "pod"), seriesOf("lag", "pod")
	for name, test := range map[string]struct {
		external bool
		rule     string
		series   []series.Series
		want     string
	}{
		"an external rule": {true, `{seriesQuery: lag}`, []series.Series{without},
			`NoNamespaceLabel: series lack the label "namespace", lag for one, and metricsQuery selects by it, so that it finds none of them: set resources.namespaced: false, name the label of the namespace in resources.overrides, or add it to these series`},
		"another label of the rule": {true, `{seriesQuery: lag, resources: {overrides: {ns: {resource: namespace}}}}`, []series.Series{with}, `NoNamespaceLabel: series lack the label "ns", lag for one, …`},
		"a name in the query":       {true, `{seriesQuery: lag, metricsQuery: 'sum(lag{<<.LabelMatchers>>}) or vector(0)'}`, []series.Series{without}, `NoNamespaceLabel: …`},
		"a rule of pods": {false, `{seriesQuery: '{__name__=~".+"}', ` + podOnly + `}`, []series.Series{seriesOf("z", "pod"), without},
			`NoNamespaceLabel: series lack the label "namespace", lag for one, and metricsQuery selects by it, so that it finds none of them: name the label of the namespace in resources.overrides, or add it to these series`},
		"some series have it": {false, `{seriesQuery: '{__name__=~".+"}', ` + podOnly + `}`, []series.Series{seriesOf("z", "pod", "namespace"), without}, `NoNamespaceLabel: series lack the label "namespace", lag for one, …`},
		"some external series have it": {true, `{seriesQuery: '{__name__=~"lag_.+"}'}`, []series.Series{seriesOf("lag_a", "namespace"), seriesOf("lag_b", "queue")},
			`NoNamespaceLabel: series lack the label "namespace", lag_b for one, …`},
		"not namespaced":              {true, `{seriesQuery: lag, resources: {namespaced: false}}`, []series.Series{without}, ""},
		"the namespace is not used":   {true, `{seriesQuery: lag, metricsQuery: 'sum(lag{name=~"<<index .LabelValuesByName "name">>"})'}`, []series.Series{without}, "IgnoresSelectors: …"},
		"of other series":             {true, `{seriesQuery: up, metricsQuery: 'sum(up_total{<<.LabelMatchers>>}) or vector(0)'}`, []series.Series{seriesOf("up", "job")}, ""},
		"joined with another":         {false, `{seriesQuery: lag, metricsQuery: 'sum(<<.Series>> * on (pod) group_left kube_pod_info{<<.LabelMatchers>>}) by (pod)', ` + podOnly + `}`, []series.Series{without}, ""},
		"PromQL that is not known":    {true, `{seriesQuery: lag, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) default 0'}`, []series.Series{without}, "UncheckedMetricsQuery: …"},
		"no series are known":         {true, `{seriesQuery: lag}`, nil, "NoSeries: …"},
		"nodes":                       {false, `{seriesQuery: load, resources: {template: <<.Resource>>}}`, []series.Series{seriesOf("load", "node")}, ""},
		"namespaces":                  {false, `{seriesQuery: load, resources: {template: <<.Resource>>}}`, []series.Series{seriesOf("load", "namespace")}, ""},
		"objects of pods and cluster": {false, `{seriesQuery: load, resources: {template: <<.Resource>>}}`, []series.Series{seriesOf("load", "namespace", "pod", "persistentvolume")}, ""},
		"objects of no namespace": {false, `{seriesQuery: depth, resources: {overrides: {queue: {group: cheese.io, resource: queue}, namespace: {resource: namespace}}}}`, []series.Series{seriesOf("depth", "namespace", "queue")},
			`ClusterScoped: autoscalers cannot read the metric depth of queues.cheese.io: these are in no namespace, and an autoscaler asks for objects of its own; make it in spec.externalMetrics.rules with resources.namespaced: false`},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewCatalog(&cluster{index: index(named("queues", "queue", "Queue", false))}, clock.RealClock{})
			c.Apply(parseBackend(t, test.external, test.rule))
			c.SetSeries(c.Selections()[0], test.series)
			h := c.Health()
			got := ""
			for _, each := range h.Rules {
				got += each.Reason + ": " + each.Message
				if each.State != v1alpha1.RuleWarning || h.Failing != 0 {
					t.Errorf("health %+v", h)
				}
			}
			if begin, _, cut := strings.Cut(test.want, "…"); got != test.want && (!cut || !strings.HasPrefix(got, begin)) {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestErrorsForAutoscalers: an error says what to write in the autoscaler, or in place of it.
func TestErrorsForAutoscalers(t *testing.T) {
	c := NewCatalog(&cluster{index: index(metav1.APIResource{Name: "queues", SingularName: "queue", Kind: "Queue"})}, clock.RealClock{})
	c.Apply(backend([]v1alpha1.MetricRule{
		parse(t, `{seriesQuery: depth, resources: {overrides: {queue: {group: cheese.io, resource: queue}}}}`),
		parse(t, `{seriesQuery: hits, resources: {template: <<.Resource>>}, metricsQuery: 'max(hits{env=~"<<index .LabelValuesByName "env">>"}) by (pod)'}`),
	}, []v1alpha1.MetricRule{
		parse(t, `{seriesQuery: lag, resources: {namespaced: false}, metricsQuery: 'sum({<<.LabelMatchers>>})'}`),
		parse(t, `{seriesQuery: times, metricsQuery: 'max_over_time(times[<<index .LabelValuesByName "window">>])'}`),
	}))
	for _, s := range c.Selections() {
		c.SetSeries(s, []series.Series{seriesOf(s.Selector, "namespace", "pod", "queue")})
	}
	external := func(metric, text string) error {
		_, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: metric, Series: selector(t, text)})
		return err
	}
	object := func(resource, metric, text string) error {
		r := query.ObjectRequest{Resource: schema.ParseGroupResource(resource), Namespace: "shop", Names: []string{"orders"}, Metric: metric, Series: selector(t, text)}
		_, _, err := c.ObjectQuery(r)
		return err
	}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"an object of no namespace": {object("queues.cheese.io", "depth", ""), "queues.cheese.io are in no namespace, and an autoscaler asks only for objects of its own namespace (type: Object): " +
			"use an external metric in its place (type: External); other clients ask at queues.cheese.io/NAME/depth"},
		"no selector":            {external("lag", ""), `the metric "lag" needs a selector, without which metricsQuery in spec.externalMetrics.rules[0] makes no PromQL (`},
		"without a label":        {external("times", ""), `the metric "times" needs a selector, without which metricsQuery in spec.externalMetrics.rules[1] makes no PromQL (`},
		"another selector":       {external("times", "window=long"), `the metric "times" cannot be asked with this selector, of which metricsQuery in spec.externalMetrics.rules[1] makes no PromQL (`},
		"a negation":             {object("pods", "hits", "env!=prod"), `the metric "hits" cannot be selected by env!="prod": `},
		"a contradiction":        {object("pods", "hits", "env=a,env=b"), `the selector (an autoscaler's metric.selector) contradicts itself`},
		"a character of regexps": {object("pods", "hits", "env in (a)"), ""},
	} {
		if test.want == "" {
			if test.err != nil {
				t.Errorf("%s: %v", name, test.err)
			}
		} else if !apierrors.IsBadRequest(test.err) || !strings.HasPrefix(test.err.Error(), test.want) {
			t.Errorf("%s: %v", name, test.err)
		}
	}
	if h := c.Health().Rules; len(h) != 4 || h[0].Reason != ReasonClusterScoped || h[1].Reason != ReasonNeedsLabels || h[2].Reason != ReasonNeedsLabels {
		t.Errorf("health %+v", h)
	}
}
