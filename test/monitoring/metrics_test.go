// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/component-base/metrics"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	// Their metrics are registered when they are imported.
	_ "github.com/metricsbackend/metrics-backend-operator/controllers/declaredmetric"
	_ "github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend"
	"github.com/metricsbackend/metrics-backend-operator/serving/server"
)

// ofOthers are metrics that are not this product's, by what exposes them. The end-to-end tests find those that their
// Prometheus has: of kube-apiserver what our configuration keeps, of kube-controller-manager none.
var ofOthers = map[string]string{
	"ALERTS":                                                        "Prometheus",
	"aggregator_unavailable_apiservice":                             "kube-apiserver",
	"apiserver_request_duration_seconds":                            "k8s.io/apiserver",
	"apiserver_request_terminations_total":                          "kube-apiserver",
	"process_cpu_seconds_total":                                     "client_golang",
	"process_resident_memory_bytes":                                 "client_golang",
	"controller_runtime_reconcile_total":                            "controller-runtime",
	"controller_runtime_reconcile_time_seconds":                     "controller-runtime",
	"horizontal_pod_autoscaler_controller_metric_computation_total": "kube-controller-manager",
}

// TestScrapeKeepsMetricsOfRules: our configuration drops no metric of kube-apiserver that a rule uses.
func TestScrapeKeepsMetricsOfRules(t *testing.T) {
	var file struct {
		Jobs []struct {
			Name     string `json:"job_name"`
			Relabels []struct {
				Regex string `json:"regex"`
			} `json:"metric_relabel_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(mustRead(t, filepath.Join(root, Folder, "scrape/prometheus.yaml"))), &file); err != nil {
		t.Fatal(err)
	}
	job := file.Jobs[len(file.Jobs)-1]
	if job.Name != "kube-apiserver-aggregator" || len(job.Relabels) != 1 {
		t.Fatalf("the last job is %+v", job)
	}
	keep := regexp.MustCompile("^(?:" + job.Relabels[0].Regex + ")$")
	for _, r := range mustRules(t).All() {
		for _, name := range metricsOf(t, r.Expr) {
			if ofOthers[name] == "kube-apiserver" && !keep.MatchString(name) {
				t.Errorf("%s%s uses %s, which is not kept", r.Alert, r.Record, name)
			}
		}
	}
}

// TestMetricsExist: each metric that rules and dashboard use is exposed by the operator or serving, or recorded.
func TestMetricsExist(t *testing.T) {
	known := slices.AppendSeq(exposed(), maps.Keys(ofOthers))
	rules := mustRules(t)
	for _, r := range rules.All() {
		if r.Record != "" {
			known = append(known, r.Record)
		}
	}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	check := func(what, expr string) {
		for _, name := range metricsOf(t, expr) {
			if !slices.Contains(known, name) && !slices.Contains(known, suffix.ReplaceAllString(name, "")) {
				t.Errorf("%s uses %s, which nobody exposes", what, name)
			}
		}
	}
	for _, r := range rules.All() {
		check(r.Alert+r.Record, r.Expr)
	}
	dashboard := mustDashboard(t)
	for _, v := range dashboard.Templating.List {
		if selector, _ := v.LabelValues(); selector != "" {
			check("variable "+v.Name, selector)
		}
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			check(p.Title, WithValues(target.Expr, nil, "5m"))
		}
	}
}

// TestRecordsOfDocs: a record that a page names is in rules.yaml.
func TestRecordsOfDocs(t *testing.T) {
	var records []string
	for _, r := range mustRules(t).All() {
		records = append(records, r.Record)
	}
	page := mustRead(t, filepath.Join(root, "docs/reference/watch-metrics.md"))
	named := regexp.MustCompile(`\bnamespace_job[a-z_]*:[a-z0-9_:]+`).FindAllString(page, -1)
	for _, name := range named {
		if !slices.Contains(records, name) {
			t.Errorf("there is no record %s", name)
		}
	}
	if len(named) != 2 {
		t.Errorf("it names %q", named)
	}
}

// TestMetricsDocumented: the reference has a row for each metric that the product exposes, and no page of docs/ names
// another one.
func TestMetricsDocumented(t *testing.T) {
	known := exposed()
	reference := mustRead(t, filepath.Join(root, "docs/reference/metrics.md"))
	own := 0
	for _, name := range known {
		if !strings.HasPrefix(name, "metrics_") {
			continue
		}
		own++
		if !regexp.MustCompile("(?m)^\\| (`[^`]*`, )*`" + name + "[`{]").MatchString(reference) {
			t.Errorf("%s is not in the reference", name)
		}
	}
	if own < 50 {
		t.Errorf("only %d metrics were found", own)
	}
	var records []string
	for _, r := range mustRules(t).All() {
		records = append(records, r.Record)
	}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	if err := filepath.WalkDir(filepath.Join(root, "docs"), func(page string, _ fs.DirEntry, err error) error {
		if filepath.Ext(page) != ".md" {
			return err
		}
		for _, name := range regexp.MustCompile(`\bmetrics_(api|backend)_[a-z_]+[a-z]\b`).FindAllString(mustRead(t, page), -1) {
			isRecord := slices.ContainsFunc(records, func(r string) bool { return strings.Contains(r, ":"+name) })
			if !isRecord && !slices.Contains(known, name) && !slices.Contains(known, suffix.ReplaceAllString(name, "")) {
				t.Errorf("%s names %s, which nobody exposes", page, name)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestDashboardShowsAllMetrics: a metric that the product exposes is somewhere in the dashboard.
func TestDashboardShowsAllMetrics(t *testing.T) {
	var shown strings.Builder
	for _, r := range mustRules(t).All() {
		if r.Record != "" {
			shown.WriteString(r.Expr + "\n")
		}
	}
	for _, p := range mustDashboard(t).Panels {
		for _, target := range p.Targets {
			shown.WriteString(target.Expr + "\n")
		}
	}
	own := 0
	for _, name := range exposed() {
		if !strings.HasPrefix(name, "metrics_") {
			continue
		}
		own++
		if !regexp.MustCompile(`\b` + name + `(_bucket)?\b`).MatchString(shown.String()) {
			t.Errorf("no panel shows %s", name)
		}
	}
	if own < 50 {
		t.Errorf("only %d metrics were found", own)
	}
}

// exposed returns the names of the metrics of serving and of the operator.
func exposed() []string {
	var names []string
	server.RegisterMetrics(func(all ...metrics.Registerable) {
		for _, m := range all {
			names = append(names, m.FQName())
		}
	})
	described := make(chan *prometheus.Desc)
	go func() {
		ctrlmetrics.Registry.(prometheus.Collector).Describe(described)
		close(described)
	}()
	name := regexp.MustCompile(`fqName: "(\w+)"`)
	for d := range described {
		if match := name.FindStringSubmatch(d.String()); match != nil {
			names = append(names, match[1])
		}
	}
	return names
}

// metricsOf returns the names of the metrics that an expression selects.
func metricsOf(t *testing.T, expr string) []string {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%v in %s", err, expr)
		return nil
	}
	var names []string
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if selector, ok := n.(*parser.VectorSelector); ok && selector.Name != "" {
			names = append(names, selector.Name)
		}
		return nil
	})
	return names
}
