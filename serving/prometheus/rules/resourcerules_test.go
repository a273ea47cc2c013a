// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// resourceRules as the chart and the manifests write them.
const resourceRules = `
cpu:
  containerLabel: container
  containerQuery: |
    sum by (<<.GroupBy>>) (
      rate(container_cpu_usage_seconds_total{container!="",<<.LabelMatchers>>}[3m])
    )
  nodeQuery: |
    sum  by (<<.GroupBy>>) (
      rate(node_cpu_seconds_total{mode!="idle",mode!="iowait",mode!="steal",<<.LabelMatchers>>}[3m])
    )
  resources:
    overrides: {node: {resource: node}, namespace: {resource: namespace}, pod: {resource: pod}}
memory:
  containerLabel: container
  containerQuery: sum(avg_over_time(container_memory_working_set_bytes{container!="",<<.LabelMatchers>>}[3m])) by (<<.GroupBy>>)
  nodeQuery: |
    sum(avg_over_time(node_memory_MemTotal_bytes{<<.LabelMatchers>>}[3m])
        - avg_over_time(node_memory_MemAvailable_bytes{<<.LabelMatchers>>}[3m])) by (<<.GroupBy>>)
  resources:
    template: kubernetes_<<.Resource>>
    overrides: {instance: {resource: nodes}}
window: 3m
`

func parseResourceRules(t *testing.T) *v1alpha1.ResourceRules {
	t.Helper()
	var r v1alpha1.ResourceRules
	if err := yaml.UnmarshalStrict([]byte(resourceRules), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func TestResourceRules(t *testing.T) {
	q, health := CompileResourceRules(parseResourceRules(t), backend(nil, nil).Sources)
	if len(health) != 0 {
		t.Fatalf("health %+v", health)
	}
	in, err := q.CPU.ContainersIn("shop")
	if err != nil {
		t.Fatal(err)
	}
	flat := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if diff := cmp.Diff([]string{
		`sum by (node) ( rate(node_cpu_seconds_total{mode!="idle",mode!="iowait",mode!="steal",node!=""}[3m]) )`,
		`sum by (namespace,pod,container) ( rate(container_cpu_usage_seconds_total{container!="",namespace!="",pod!=""}[3m]) )`,
		`sum by (pod,container) ( rate(container_cpu_usage_seconds_total{container!="",namespace="shop",pod!=""}[3m]) )`,
		`sum(avg_over_time(container_memory_working_set_bytes{container!="",kubernetes_namespace!="",kubernetes_pod!=""}[3m])) by (kubernetes_namespace,kubernetes_pod,container)`,
		`sum(avg_over_time(node_memory_MemTotal_bytes{instance!=""}[3m]) - avg_over_time(node_memory_MemAvailable_bytes{instance!=""}[3m])) by (instance)`,
	}, []string{flat(q.CPU.Nodes), flat(q.CPU.Containers), flat(in), flat(q.Memory.Containers), flat(q.Memory.Nodes)}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if q.Source != "prometheus" || q.Interval != 15*time.Second || q.Window != 3*time.Minute {
		t.Errorf("source %q, interval %s, window %s", q.Source, q.Interval, q.Window)
	}
	if q.Memory.NodeLabel != "instance" || q.Memory.PodLabel != "kubernetes_pod" || q.CPU.ContainerLabel != "container" {
		t.Errorf("labels %+v", q.Memory)
	}
	if _, err := q.CPU.ContainersIn(`a"`); err == nil {
		t.Error("a namespace that leaves its quotes was taken")
	}
}

// kubePrometheusLike are rules of the forms that kube-prometheus has: cAdvisor's series
// without the pause container, and nodes by either of two exporters, one of which knows
// nodes only by the pod that it runs in.
const kubePrometheusLike = `
cpu:
  containerLabel: container
  containerQuery: |
    sum by (<<.GroupBy>>) (irate(container_cpu_usage_seconds_total{<<.LabelMatchers>>,container!="",pod!=""}[2m]))
  nodeQuery: |
    sum by (<<.GroupBy>>) (
      (1 - irate(node_cpu_seconds_total{mode="idle"}[1m]))
      * on (namespace, pod) group_left (node) exporter_pod:on_node:info{<<.LabelMatchers>>}
    ) or sum by (<<.GroupBy>>) (irate(agent_cpu_busy_seconds_total{<<.LabelMatchers>>}[4m]))
  resources:
    overrides: {namespace: {resource: namespace}, node: {resource: node}, pod: {resource: pod}}
memory:
  containerLabel: container
  containerQuery: sum by (<<.GroupBy>>) (container_memory_working_set_bytes{<<.LabelMatchers>>,container!="",pod!=""})
  nodeQuery: |
    sum by (<<.GroupBy>>) (node_memory_MemTotal_bytes{<<.LabelMatchers>>} - node_memory_MemAvailable_bytes{<<.LabelMatchers>>})
    or sum by (<<.GroupBy>>) (agent_memory_used_bytes{<<.LabelMatchers>>})
  resources:
    overrides: {instance: {resource: node}, namespace: {resource: namespace}, pod: {resource: pod}}
window: 5m
`

// The query of nodes is asked as it is, `or` and group_left included; that of containers
// for the whole cluster at once.
func TestResourceRulesLikeKubePrometheus(t *testing.T) {
	var r v1alpha1.ResourceRules
	if err := yaml.UnmarshalStrict([]byte(kubePrometheusLike), &r); err != nil {
		t.Fatal(err)
	}
	q, health := CompileResourceRules(&r, backend(nil, nil).Sources)
	if len(health) != 0 {
		t.Fatalf("health %+v", health)
	}
	flat := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if diff := cmp.Diff([]string{
		`sum by (node) ( (1 - irate(node_cpu_seconds_total{mode="idle"}[1m])) * on (namespace, pod) group_left (node) exporter_pod:on_node:info{node!=""} ) or sum by (node) (irate(agent_cpu_busy_seconds_total{node!=""}[4m]))`,
		`sum by (namespace,pod,container) (irate(container_cpu_usage_seconds_total{namespace!="",pod!="",container!="",pod!=""}[2m]))`,
		`sum by (instance) (node_memory_MemTotal_bytes{instance!=""} - node_memory_MemAvailable_bytes{instance!=""}) or sum by (instance) (agent_memory_used_bytes{instance!=""})`,
		`sum by (namespace,pod,container) (container_memory_working_set_bytes{namespace!="",pod!="",container!="",pod!=""})`,
	}, []string{flat(q.CPU.Nodes), flat(q.CPU.Containers), flat(q.Memory.Nodes), flat(q.Memory.Containers)}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A query that says itself what to group by cannot be asked for all namespaces: pods
// of the same name would be one.
func TestResourceRulesByNamespace(t *testing.T) {
	for _, text := range []string{
		`sum(usage{<<.LabelMatchers>>}) by (pod, container)`,
		`max(usage{namespace="<<.LabelValuesByName.namespace>>",<<.LabelMatchers>>}) by (<<.GroupBy>>)`,
		`topk(10, usage{<<.LabelMatchers>>})`,
	} {
		r := parseResourceRules(t)
		r.CPU.ContainerQuery = text
		q, health := CompileResourceRules(r, backend(nil, nil).Sources)
		if len(health) != 0 {
			t.Fatalf("%s: health %+v", text, health)
		}
		if q.CPU.Containers != "" {
			t.Errorf("%s is asked for all: %s", text, q.CPU.Containers)
		}
	}
}

func TestResourceRulesThatAreWrong(t *testing.T) {
	for name, test := range map[string]struct {
		change                func(*v1alpha1.ResourceRules)
		path, reason, message string
	}{
		"a source":         {func(r *v1alpha1.ResourceRules) { r.Source = "x" }, "", ReasonUnknownSource, `"x"`},
		"a window":         {func(r *v1alpha1.ResourceRules) { r.Window = "soon" }, "", ReasonInvalidWindow, "soon"},
		"no window at all": {func(r *v1alpha1.ResourceRules) { r.Window = "0s" }, "", ReasonInvalidWindow, "0s"},
		"an interval":      {func(r *v1alpha1.ResourceRules) { r.Interval = "1ms" }, "", ReasonInvalidInterval, `interval "1ms"`},
		"no container":     {func(r *v1alpha1.ResourceRules) { r.CPU.ContainerLabel = "" }, ".cpu", ReasonInvalidResources, "containerLabel"},
		"a template":       {func(r *v1alpha1.ResourceRules) { r.Memory.Resources.Template = "<<" }, ".memory", ReasonInvalidResources, "template"},
		"a container":      {func(r *v1alpha1.ResourceRules) { r.Memory.ContainerQuery = "sum(" }, ".memory", ReasonInvalidMetricsQuery, "containerQuery"},
		"no query":         {func(r *v1alpha1.ResourceRules) { r.Memory.ContainerQuery = "" }, ".memory", ReasonInvalidMetricsQuery, "containerQuery is empty"},
		"a node's":         {func(r *v1alpha1.ResourceRules) { r.Memory.NodeQuery = "sum(" }, ".memory", ReasonInvalidMetricsQuery, "nodeQuery"},
		"a loop":           {func(r *v1alpha1.ResourceRules) { r.Memory.NodeQuery = "<<range 1000000000>><<end>>" }, ".memory", ReasonInvalidMetricsQuery, "too long"},
		"nothing":          {func(r *v1alpha1.ResourceRules) { *r = v1alpha1.ResourceRules{} }, ".cpu", ReasonInvalidResources, "namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			r := parseResourceRules(t)
			test.change(r)
			q, health := CompileResourceRules(r, backend(nil, nil).Sources)
			if q != nil || len(health) == 0 {
				t.Fatalf("queries %+v", q)
			}
			if h := health[0]; h.Path != "spec.resourceMetrics.rules"+test.path || h.Reason != test.reason || !strings.Contains(h.Message, test.message) {
				t.Errorf("health %+v", h)
			}
		})
	}
}

// Who has no figures of nodes has those of pods: autoscalers need no others.
func TestResourceRulesForPodsAlone(t *testing.T) {
	for name, test := range map[string]struct {
		change              func(*v1alpha1.ResourceRules)
		path, reason, tells string
	}{
		"no label of nodes": {func(r *v1alpha1.ResourceRules) { delete(r.CPU.Resources.Overrides, "node") }, ".cpu.nodeQuery", ReasonInvalidResources, "resources.overrides"},
		"no query of nodes": {func(r *v1alpha1.ResourceRules) { r.Memory.NodeQuery = " " }, ".memory.nodeQuery", ReasonInvalidMetricsQuery, "is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			r := parseResourceRules(t)
			test.change(r)
			q, health := CompileResourceRules(r, backend(nil, nil).Sources)
			if q == nil || q.HasNodes() || q.CPU.Containers == "" || q.Memory.Containers == "" {
				t.Fatalf("queries %+v, health %+v", q, health)
			}
			if len(health) != 1 || health[0].Path != "spec.resourceMetrics.rules"+test.path || health[0].State != v1alpha1.RuleFailing ||
				health[0].Reason != test.reason || !strings.Contains(health[0].Message, test.tells) {
				t.Errorf("health %+v", health)
			}
		})
	}
}

// A duration in Prometheus' language has days.
func TestWindowInDays(t *testing.T) {
	r := parseResourceRules(t)
	r.Window = "1d"
	q, health := CompileResourceRules(r, backend(nil, nil).Sources)
	if len(health) != 0 || q.Window != 24*time.Hour {
		t.Errorf("%+v", health)
	}
}
