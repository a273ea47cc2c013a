// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// parse reads a rule as people write it.
func parse(t testing.TB, text string) v1alpha1.MetricRule {
	t.Helper()
	var r v1alpha1.MetricRule
	if err := yaml.UnmarshalStrict([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func listOf(c *Catalog) []string {
	var all []string
	for _, m := range objects(c) {
		all = append(all, m.Resource.String()+"/"+m.Name)
	}
	return all
}

// The forms in which rules are written, each with the metrics and a query that they make.
func TestRulesOfObjects(t *testing.T) {
	cadvisor := []series.Series{
		seriesOf("container_cpu_usage_seconds_total", "namespace", "pod", "container", "cpu"),
		seriesOf("container_network_receive_bytes_total", "namespace", "pod", "interface"),
		seriesOf("container_memory_working_set_bytes", "namespace", "pod", "container"),
	}
	type ask struct {
		resource, group, namespace, metric, selector string
		names                                        []string
	}
	for name, test := range map[string]struct {
		// rule names objects by namespace and pod unless it says otherwise.
		rule string
		// series and metrics are requests of pods by default.
		series  []series.Series
		metrics []string
		ask     ask
		want    string
	}{
		"seconds of containers, by a group of the name": {
			rule: `
seriesQuery: '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'
name: {matches: "^container_(.*)_seconds_total$"}
metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>,container!="POD"}[2m])) by (<<.GroupBy>>)'`,
			series: cadvisor, metrics: []string{"namespaces/cpu_usage", "pods/cpu_usage"},
			ask:  ask{resource: "pods", namespace: "shop", metric: "cpu_usage", names: []string{"web-0"}},
			want: `sum(rate(container_cpu_usage_seconds_total{namespace="shop",pod!="",container!="POD"}[2m])) by (pod)`,
		},
		"the other counters of containers, by a filter": {
			rule: `
seriesQuery: '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'
seriesFilters: [{isNot: "^container_.*_seconds_total$"}]
name: {matches: "^container_(.*)_total$", as: ""}
metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>,container!="POD"}[5m])) by (<<.GroupBy>>)'`,
			series: cadvisor, metrics: []string{"namespaces/network_receive_bytes", "pods/network_receive_bytes"},
			ask:  ask{resource: "namespaces", metric: "network_receive_bytes", names: []string{"shop"}},
			want: `sum(rate(container_network_receive_bytes_total{namespace!="",container!="POD"}[5m])) by (namespace)`,
		},
		"the gauges of containers, by two filters": {
			rule: `
seriesQuery: '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'
seriesFilters: [{isNot: "^container_.*_total$"}, {is: "memory"}]
name: {matches: "^container_(.*)$", as: ""}
metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>,container!="POD"}) by (<<.GroupBy>>)`,
			series: cadvisor, metrics: []string{"namespaces/memory_working_set_bytes", "pods/memory_working_set_bytes"},
			ask:  ask{resource: "pods", namespace: "shop", metric: "memory_working_set_bytes", names: []string{"a", "b"}},
			want: `sum(container_memory_working_set_bytes{namespace="shop",pod!="",container!="POD"}) by (pod)`,
		},
		"a template of labels, a block of text and a name by default": {
			rule: `
seriesQuery: |
  {namespace!="",__name__!~"^container_.*"}
resources: {template: "<<.Resource>>"}
name: {matches: "^(.*)_total", as: ""}
metricsQuery: |
  sum by (<<.GroupBy>>) (
    irate (
      <<.Series>>{<<.LabelMatchers>>}[1m]
    )
  )`,
			series:  []series.Series{seriesOf("hits_total", "namespace", "pod", "service", "instance", "job", "le")},
			metrics: []string{"namespaces/hits", "pods/hits", "services/hits", "jobs.batch/hits"},
			ask:     ask{resource: "services", namespace: "shop", metric: "hits", names: []string{"web"}},
			want:    "sum by (service) (\n  irate (\n    hits_total{namespace=\"shop\",service!=\"\"}[1m]\n  )\n)",
		},
		"a template with a group": {
			rule: `
seriesQuery: '{__name__=~"^kube_.*"}'
resources: {template: "kube_<<.Group>>_<<.Resource>>", overrides: {ns: {resource: Namespace}}}
metricsQuery: max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)`,
			series:  []series.Series{seriesOf("kube_lag", "ns", "kube_apps_deployment", "kube_networking_k8s_io_ingress", "kube__pod", "kube_x")},
			metrics: []string{"namespaces/kube_lag", "pods/kube_lag", "deployments.apps/kube_lag", "ingresses.networking.k8s.io/kube_lag"},
			ask:     ask{resource: "ingresses", group: "extensions", namespace: "shop", metric: "kube_lag", names: []string{"front"}},
			want:    `max(kube_lag{ns="shop",kube_networking_k8s_io_ingress!=""}) by (kube_networking_k8s_io_ingress)`,
		},
		"overrides beside a template": {
			rule: `
seriesQuery: 'queue_length{exported_namespace!=""}'
resources:
  template: "kubernetes_<<.Resource>>"
  overrides: {exported_namespace: {resource: namespaces}, owner: {group: apps, resource: deployment}}
metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)`,
			series:  []series.Series{seriesOf("queue_length", "exported_namespace", "owner", "kubernetes_pod")},
			metrics: []string{"namespaces/queue_length", "pods/queue_length", "deployments.apps/queue_length"},
			ask:     ask{resource: "deployments", group: "apps", namespace: "shop", metric: "queue_length", names: []string{"web"}},
			want:    `avg(queue_length{exported_namespace="shop",owner!=""}) by (owner)`,
		},
		"two labels of each resource, one of which not all series have": {
			rule: `
seriesQuery: hits
resources: {overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}, namespace: {resource: namespace}, pod: {resource: pod}}}`,
			series: []series.Series{
				seriesOf("hits", "namespace", "pod"), seriesOf("hits", "exported_namespace", "exported_pod", "namespace", "pod"),
			},
			metrics: []string{"namespaces/hits", "pods/hits"},
			ask:     ask{resource: "pods", namespace: "shop", metric: "hits", names: []string{"a"}},
			want:    `sum(hits{namespace="shop",pod!=""}) by (pod)`,
		},
		"two labels of each resource, which all series have": {
			rule: `
seriesQuery: hits
resources: {overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}, namespace: {resource: namespace}, pod: {resource: pod}}}`,
			series:  []series.Series{seriesOf("hits", "exported_namespace", "exported_pod", "namespace", "pod")},
			metrics: []string{"namespaces/hits", "pods/hits"},
			ask:     ask{resource: "pods", namespace: "shop", metric: "hits", names: []string{"a"}},
			want:    `sum(hits{exported_namespace="shop",exported_pod!=""}) by (exported_pod)`,
		},
		"one metric with another name, and a query of its own": {
			rule: `
seriesQuery: 'cheddar{sharp="true"}'
name: {as: cheesy_goodness}
resources: {overrides: {brand: {resource: node}}}
metricsQuery: 'count(cheddar{sharp="true"})'`,
			series: []series.Series{seriesOf("cheddar", "brand", "sharp")}, metrics: []string{"nodes/cheesy_goodness"},
			ask:  ask{resource: "nodes", metric: "cheesy_goodness", names: []string{"a"}},
			want: `count(cheddar{sharp="true"})`,
		},
		"a ratio of two series": {
			rule: `
seriesQuery: latency_sum
name: {matches: "^(.*)_sum$", as: "${1}_average"}
metricsQuery: 'sum(latency_sum{<<.LabelMatchers>>}) by (<<.GroupBy>>) / sum(latency_count{<<.LabelMatchers>>}) by (<<.GroupBy>>)'`,
			series: []series.Series{seriesOf("latency_sum", "namespace", "pod")}, metrics: []string{"namespaces/latency_average", "pods/latency_average"},
			ask:  ask{resource: "pods", namespace: "shop", metric: "latency_average", names: []string{"a"}},
			want: `sum(latency_sum{namespace="shop",pod!=""}) by (pod) / sum(latency_count{namespace="shop",pod!=""}) by (pod)`,
		},
		"groups with names": {
			rule: `
seriesQuery: '{__name__=~"^app_.*",pod!=""}'
name: {matches: "^app_(?P<what>.*)_(?P<unit>bytes|seconds)$", as: "${unit}-of-${what}"}`,
			series: []series.Series{seriesOf("app_sent_bytes", "namespace", "pod")}, metrics: []string{"namespaces/bytes-of-sent", "pods/bytes-of-sent"},
			ask:  ask{resource: "pods", namespace: "shop", metric: "bytes-of-sent", names: []string{"a"}},
			want: `sum(app_sent_bytes{namespace="shop",pod!=""}) by (pod)`,
		},
		"a selector of the metric comes first": {
			rule: `
seriesQuery: requests{pod!=""}`,
			series: []series.Series{seriesOf("requests", "namespace", "pod", "verb")}, metrics: []string{"namespaces/requests", "pods/requests"},
			ask:  ask{resource: "pods", namespace: "shop", metric: "requests", selector: "verb in (GET,PUT),code!=500", names: []string{"a"}},
			want: `sum(requests{code!="500",verb=~"GET|PUT",namespace="shop",pod!=""}) by (pod)`,
		},
		"a query that needs the names, one": {
			rule: `
seriesQuery: requests{pod!=""}
metricsQuery: topk(1, <<.Series>>{<<.LabelMatchers>>})`,
			ask:  ask{resource: "pods", namespace: "shop", metric: "requests", names: []string{"web.0"}},
			want: `topk(1, requests{namespace="shop",pod="web.0"})`,
		},
		"a query that needs the names, several": {
			rule: `
seriesQuery: requests{pod!=""}
metricsQuery: topk(1, <<.Series>>{<<.LabelMatchers>>})`,
			ask:  ask{resource: "pods", namespace: "shop", metric: "requests", names: []string{"web.0", "web-1"}},
			want: `topk(1, requests{namespace="shop",pod=~"web\\.0|web-1"})`,
		},
		"values by the names of labels": {
			rule: `
seriesQuery: requests{pod!=""}
metricsQuery: 'max(<<.Series>>{namespace="<<index .LabelValuesByName "namespace">>",pod=~"<<index .LabelValuesByName "pod">>"})'`,
			ask:  ask{resource: "pods", namespace: "shop", metric: "requests", names: []string{"web.0", "web-1"}},
			want: `max(requests{namespace="shop",pod=~"web[.]0|web-1"})`,
		},
		"a loop over what is grouped by": {
			rule: `
seriesQuery: requests{pod!=""}
metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<range .GroupBySlice>><<.>>,<<end>>namespace)'`,
			ask:  ask{resource: "pods", namespace: "shop", metric: "requests", names: []string{"a"}},
			want: `sum(requests{namespace="shop",pod!=""}) by (pod,namespace)`,
		},
		"no label of the namespace": {
			rule: `
seriesQuery: requests
resources: {overrides: {pod: {resource: pod}}}`,
			series: []series.Series{seriesOf("requests", "namespace", "pod")}, metrics: []string{"pods/requests"},
			ask:  ask{resource: "pods", namespace: "shop", metric: "requests", names: []string{"a"}},
			want: `sum(requests{namespace="shop",pod!=""}) by (pod)`,
		},
		"a label that is not made of letters": {
			rule: `
seriesQuery: requests
resources: {overrides: {k8s.pod.name: {resource: pod}, k8s.namespace.name: {resource: namespace}}}`,
			series: []series.Series{seriesOf("requests", "k8s.pod.name", "k8s.namespace.name")}, metrics: []string{"namespaces/requests", "pods/requests"},
			ask:  ask{resource: "pods", namespace: "shop", metric: "requests", names: []string{"a"}},
			want: `sum(requests{"k8s.namespace.name"="shop","k8s.pod.name"!=""}) by ("k8s.pod.name")`,
		},
		"the singular of the resource is asked": {
			rule: `
seriesQuery: requests
resources: {template: <<.Resource>>}`,
			series: []series.Series{seriesOf("requests", "pod", "namespace")}, metrics: []string{"namespaces/requests", "pods/requests"},
			ask:  ask{resource: "pod", namespace: "shop", metric: "requests", names: []string{"a"}},
			want: `sum(requests{namespace="shop",pod!=""}) by (pod)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			rule := parse(t, test.rule)
			if rule.Resources.Template == "" && rule.Resources.Overrides == nil {
				rule.Resources = namespacePod
			}
			if test.series == nil {
				test.series, test.metrics = []series.Series{seriesOf("requests", "namespace", "pod")}, []string{"namespaces/requests", "pods/requests"}
			}
			c := newCatalog(t, backend([]v1alpha1.MetricRule{rule}, nil), test.series...)
			if h := c.Health(); len(h.Rules) != 0 {
				t.Errorf("health %+v", h.Rules)
			}
			if diff := cmp.Diff(test.metrics, listOf(c)); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
			a := test.ask
			mq, _, err := c.ObjectQuery(query.ObjectRequest{
				Resource: schema.GroupResource{Group: a.group, Resource: a.resource}, Namespace: a.namespace, Names: a.names, Metric: a.metric, Series: selector(t, a.selector),
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, mq.Query.Expression); diff != "" {
				t.Errorf("query (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExternalRules(t *testing.T) {
	for name, test := range map[string]struct {
		rule, metric, selector, want string
	}{
		"a namespace of the rule": {
			`{seriesQuery: '{__name__="lag",name!=""}', metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (name)', resources: {overrides: {exported_namespace: {resource: namespace}}}}`,
			"lag", "name=orders", `sum(lag{name="orders",exported_namespace="shop"}) by (name)`,
		},
		"a namespace of the source": {
			`{seriesQuery: '{__name__="lag",name!=""}', metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (name)'}`,
			"lag", "", `sum(lag{namespace="shop"}) by (name)`,
		},
		"no namespace": {
			`{seriesQuery: '{__name__="lag",name!=""}', metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (name)', resources: {namespaced: false}}`,
			"lag", "", `sum(lag{}) by (name)`,
		},
		"no namespace but the selector's": {
			`{seriesQuery: '{__name__="lag",name!=""}', metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (name)', resources: {namespaced: false}}`,
			"lag", "namespace=queue,name=mine", `sum(lag{name="mine",namespace="queue"}) by (name)`,
		},
		"another name": {
			`{seriesQuery: lag, name: {as: queue/lag}, metricsQuery: 'max(lag{<<.LabelMatchers>>})'}`,
			"queue/lag", "", `max(lag{namespace="shop"})`,
		},
		"nothing to group by": {
			`{seriesQuery: lag, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'}`,
			"lag", "", `sum(lag{namespace="shop"}) by ()`,
		},
		"a sum where there is no query": {
			`{seriesQuery: lag}`, "lag", "", `sum(lag{namespace="shop"}) by ()`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCatalog(t, backend(nil, []v1alpha1.MetricRule{parse(t, test.rule)}), seriesOf("lag", "namespace", "exported_namespace", "name"))
			if h := c.Health(); len(h.Rules) != 0 || h.ExternalMetrics != 1 {
				t.Errorf("health %+v", h)
			}
			if diff := cmp.Diff([]string{test.metric}, externals(c)); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
			mq, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: test.metric, Series: selector(t, test.selector)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, mq.Query.Expression); diff != "" {
				t.Errorf("query (-want +got):\n%s", diff)
			}
			if mq.ObjectLabel != "" || mq.Origin != "spec.externalMetrics.rules[0]" {
				t.Errorf("mq %+v", mq)
			}
		})
	}
}

// A rule that is wrong says so, and what to do. Only an invalid one needs another spec.
func TestRuleHealth(t *testing.T) {
	const invalid, failing, warning = v1alpha1.RuleInvalid, v1alpha1.RuleFailing, v1alpha1.RuleWarning
	const rest = `, resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}`
	for name, test := range map[string]struct {
		rule, reason, message string
		state                 v1alpha1.RuleState
	}{
		"no seriesQuery":                         {`{seriesQuery: ""` + rest + `}`, ReasonInvalidSeriesQuery, "is empty", invalid},
		"not a selector":                         {`{seriesQuery: 'rate(x[5m])'` + rest + `}`, ReasonInvalidSeriesQuery, "not a selector", invalid},
		"everything":                             {`{seriesQuery: '{pod=~".*"}'` + rest + `}`, ReasonInvalidSeriesQuery, "selects everything", invalid},
		"a filter of nothing":                    {`{seriesQuery: x, seriesFilters: [{}]` + rest + `}`, ReasonInvalidSeriesFilter, "seriesFilters[0] has both or none", invalid},
		"a filter of both":                       {`{seriesQuery: x, seriesFilters: [{is: a}, {is: a, isNot: b}]` + rest + `}`, ReasonInvalidSeriesFilter, "seriesFilters[1]", invalid},
		"a filter that is none":                  {`{seriesQuery: x, seriesFilters: [{is: "("}]` + rest + `}`, ReasonInvalidSeriesFilter, "regular expression", invalid},
		"names that are none":                    {`{seriesQuery: x, name: {matches: "(?!x)"}` + rest + `}`, ReasonInvalidName, "regular expression", invalid},
		"two groups and no as":                   {`{seriesQuery: x, name: {matches: "(a)(b)"}` + rest + `}`, ReasonInvalidName, "has 2 groups", invalid},
		"a group that is none":                   {`{seriesQuery: x, name: {matches: "(.*)", as: "m_$1_sum"}` + rest + `}`, ReasonInvalidName, "${1}_per_second", warning},
		"a name with a slash":                    {`{seriesQuery: x, name: {as: "a/b"}` + rest + `}`, ReasonInvalidName, `"a/b" has a character`, failing},
		"no resources":                           {`{seriesQuery: x}`, ReasonInvalidResources, "set resources.template", invalid},
		"a template that is none":                {`{seriesQuery: x, resources: {template: "<<.Resource"}}`, ReasonInvalidResources, "resources.template", invalid},
		"no resource in it":                      {`{seriesQuery: x, resources: {template: "<<.Group>>"}}`, ReasonInvalidResources, "<<.Resource>> is missing", invalid},
		"a pattern that is none":                 {`{seriesQuery: x, resources: {template: "(<<.Resource>>"}}`, ReasonInvalidResources, "pattern of labels", invalid},
		"a template that cuts":                   {`{seriesQuery: x, resources: {template: '<<printf "%.3s" .Resource>><<.Resource>>'}}`, ReasonInvalidResources, "resources.template", invalid},
		"a label without a name":                 {`{seriesQuery: x, resources: {overrides: {"": {resource: pod}}}}`, ReasonInvalidResources, "label's name", invalid},
		"a label of nothing":                     {`{seriesQuery: x, resources: {overrides: {pod: {group: apps}}}}`, ReasonInvalidResources, "names no resource", invalid},
		"an unknown resource":                    {`{seriesQuery: x, resources: {overrides: {brand: {group: cheese.io, resource: brand}}}}`, ReasonUnknownResource, "brand.cheese.io", failing},
		"one unknown resource":                   {`{seriesQuery: x, resources: {overrides: {brand: {resource: brand}, pod: {resource: pod}}}}`, ReasonUnknownResource, "brand", warning},
		"not a template":                         {`{seriesQuery: x, metricsQuery: "<<.Series"` + rest + `}`, ReasonInvalidMetricsQuery, "not a template", invalid},
		"not PromQL":                             {`{seriesQuery: x, metricsQuery: "sum(<<.Series>>{<<.LabelMatchers>>})) by (<<.GroupBy>>)"` + rest + `}`, ReasonInvalidMetricsQuery, "does not make PromQL", invalid},
		"a template for ever":                    {`{seriesQuery: x, metricsQuery: "<<range 1000000000>><<end>>up"` + rest + `}`, ReasonInvalidMetricsQuery, "takes too long", invalid},
		"a range of samples":                     {`{seriesQuery: x, metricsQuery: "<<.Series>>{<<.LabelMatchers>>}[5m]"` + rest + `}`, ReasonInvalidMetricsQuery, "range of samples", invalid},
		"an unknown field":                       {`{seriesQuery: x, metricsQuery: "<<.Labels>>"` + rest + `}`, ReasonInvalidMetricsQuery, "Labels", invalid},
		"an unknown source":                      {`{seriesQuery: x, source: thanos` + rest + `}`, ReasonUnknownSource, `no Prometheus named "thanos": it has prometheus`, invalid},
		"an interval":                            {`{seriesQuery: x, interval: soon` + rest + `}`, ReasonInvalidInterval, `interval "soon"`, invalid},
		"an age of samples":                      {`{seriesQuery: x, maxSampleAge: 1d` + rest + `}`, ReasonInvalidMaxSampleAge, `maxSampleAge "1d" must be a duration`, invalid},
		"an age of samples that cannot be known": {`{seriesQuery: x, maxSampleAge: 1m, metricsQuery: "absent(<<.Series>>{<<.LabelMatchers>>})"` + rest + `}`, ReasonInvalidMaxSampleAge, "cannot be known of metricsQuery", invalid},
		"duplicates":                             {`{seriesQuery: x, duplicatesPolicy: Median` + rest + `}`, ReasonInvalidDuplicates, "Reject, Sum", invalid},
		"invalid values":                         {`{seriesQuery: x, invalidValuesPolicy: Skip` + rest + `}`, ReasonInvalidValuesPolicy, `invalidValuesPolicy is "Skip": it must be Reject or Omit`, invalid},
		"no series":                              {`{seriesQuery: x, seriesFilters: [{is: y}]` + rest + `}`, ReasonNoSeries, "seriesQuery at the source as its tenant (headers: X-Scope-OrgID) with its queryParameters (extra_label), and see", warning},
		"no objects":                             {`{seriesQuery: x, resources: {overrides: {node: {resource: node}}}}`, ReasonNoObjects, "x has the labels namespace, pod", warning},
	} {
		t.Run(name, func(t *testing.T) {
			good := parse(t, `{seriesQuery: good`+rest+`}`)
			c := newCatalog(t, backend([]v1alpha1.MetricRule{good, parse(t, test.rule)}, nil))
			for _, s := range c.Selections() {
				found := []series.Series{seriesOf(strings.Split(s.Selector, "{")[0], "namespace", "pod")}
				c.SetSeries(s, found)
			}
			h := c.Health()
			if len(h.Rules) == 0 {
				t.Fatal("nothing is wrong")
			}
			first := h.Rules[0]
			if first.Path != "spec.customMetrics.rules[1]" || first.Reason != test.reason || !strings.Contains(first.Message, test.message) {
				t.Errorf("health %+v, want %s: %s", first, test.reason, test.message)
			}
			if first.State != test.state {
				t.Errorf("it is %s, not %s", first.State, test.state)
			}
			if want := map[bool]int{true: 1}[test.state != warning]; h.Failing != want || h.Count != 2 {
				t.Errorf("%d of %d rules fail, want %d", h.Failing, h.Count, want)
			}
			if _, _, err := c.ObjectQuery(pods("shop", "good", "a")); err != nil {
				t.Errorf("it stops the other rule: %v", err)
			}
		})
	}
}
