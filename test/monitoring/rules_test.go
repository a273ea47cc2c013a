// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../.."

// TestAlertsAreComplete: each alert has a severity, a next command, a section in docs/reference/alerts.md, which has no others,
// and cases in testdata in which it fires and in which it does not.
func TestAlertsAreComplete(t *testing.T) {
	rules := mustRules(t)
	page := mustRead(t, filepath.Join(root, "docs/reference/alerts.md"))
	sections := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(page, -1) {
		sections[match[1]] = true
	}
	fires, quiet, labels := cases(t)
	template := regexp.MustCompile(`\{\{.*?\}\}`)
	for _, r := range rules.All() {
		if r.Alert == "" {
			continue
		}
		t.Run(r.Alert, func(t *testing.T) {
			if s := r.Labels["severity"]; !regexp.MustCompile(`^(critical|warning|\{\{ if [^{}]+ \}\}critical\{\{ else \}\}warning\{\{ end \}\})$`).MatchString(s) {
				t.Errorf("its severity is %q", s)
			}
			if r.Annotations["summary"] == "" || !strings.Contains(r.Annotations["description"], " Run: kubectl ") {
				t.Errorf("it has no summary, or no command in its description: %q", r.Annotations)
			}
			const pages = "https://github.com/metricsbackend/metrics-backend-operator/blob/main/docs/reference/alerts.md#"
			if got, want := r.Annotations["runbook_url"], pages+strings.ToLower(r.Alert); got != want {
				t.Errorf("its runbook_url is %s, not %s", got, want)
			}
			if !sections[r.Alert] {
				t.Error("docs/reference/alerts.md has no section of it")
			}
			if !fires[r.Alert] {
				t.Error("no test fires it")
			}
			if r.For != "" && !quiet[r.Alert] {
				t.Error("no test shows that it waits")
			}
			for _, annotation := range r.Annotations {
				for _, use := range template.FindAllString(annotation, -1) {
					for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(use, -1) {
						if !regexp.MustCompile(`[{,]` + label[1] + "=").MatchString(labels[r.Alert]) {
							t.Errorf("an annotation uses the label %s, which the alert does not have: %s", label[1], labels[r.Alert])
						}
					}
				}
			}
		})
		delete(sections, r.Alert)
	}
	for name := range sections {
		t.Errorf("docs/reference/alerts.md has a section of %s, which is no alert", name)
	}
}

// cases returns the alerts that fire in a case of testdata, with their labels, and those that are looked for
// and are not there.
func cases(t *testing.T) (fires, quiet map[string]bool, labels map[string]string) {
	t.Helper()
	fires, quiet, labels = map[string]bool{}, map[string]bool{}, map[string]string{}
	var file struct {
		Tests []struct {
			Cases []struct {
				Expr    string `json:"expr"`
				Samples []struct {
					Labels string `json:"labels"`
				} `json:"exp_samples"`
			} `json:"promql_expr_test"`
		} `json:"tests"`
	}
	for _, name := range []string{"alerts", "day"} {
		one := file
		one.Tests = nil
		if err := yaml.Unmarshal([]byte(mustRead(t, "testdata/"+name+".yaml")), &one); err != nil {
			t.Fatal(err)
		}
		file.Tests = append(file.Tests, one.Tests...)
	}
	alert := regexp.MustCompile(`alertname="(\w+)"`)
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			named := alert.FindStringSubmatch(c.Expr)
			if named != nil && len(c.Samples) == 0 {
				quiet[named[1]] = true
			}
			for _, s := range c.Samples {
				if named := alert.FindStringSubmatch(s.Labels); named != nil {
					fires[named[1]], labels[named[1]] = true, s.Labels
				}
			}
		}
	}
	return fires, quiet, labels
}

// TestHealthyCaseHasAllMetrics: in the case without faults, no alert is silent because its series are missing.
func TestHealthyCaseHasAllMetrics(t *testing.T) {
	var file struct {
		Tests []struct {
			Series []struct {
				Series string `json:"series"`
			} `json:"input_series"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal([]byte(mustRead(t, "testdata/alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	healthy := map[string]bool{}
	for _, s := range file.Tests[0].Series {
		name, _, _ := strings.Cut(s.Series, "{")
		healthy[name] = true
	}
	for _, r := range mustRules(t).All() {
		for _, name := range metricsOf(t, r.Expr) {
			if !healthy[name] && !strings.Contains(name, ":") {
				t.Errorf("%s%s uses %s, which the first case does not have", r.Alert, r.Record, name)
			}
		}
	}
}

func mustRules(t *testing.T) *RuleFile {
	t.Helper()
	rules, err := Rules(root)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
