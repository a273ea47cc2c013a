// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/serving/server/report"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// readPage returns a page of the documentation.
func readPage(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestEndingsDocumented checks that the page for administrators explains why a watch ends.
func TestEndingsDocumented(t *testing.T) {
	page := readPage(t, "reference/watch-metrics.md")
	for _, ending := range []stream.EndReason{
		stream.ClientClosed, stream.TimedOut, stream.AgedOut, stream.ShutDown, stream.Disabled, stream.Revoked,
		stream.Stalled, stream.WriteFailed, stream.Abandoned,
	} {
		if !strings.Contains(page, "| `"+string(ending)+"` |") {
			t.Errorf("%s is not in the table of reasons", ending)
		}
	}
}

// reasonsIn returns the values of a file's constants whose names begin with Reason or OmitReason.
func reasonsIn(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Reason") && !strings.HasPrefix(spec.Names[0].Name, "OmitReason") {
			return true
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, text)
		}
		return true
	})
	if len(all) == 0 {
		t.Fatalf("%s has no reasons", file)
	}
	return all
}

// TestReasonsDocumented checks that the pages explain each reason of a declared metric
// and of a rule, and no unknown reason of a declared metric.
func TestReasonsDocumented(t *testing.T) {
	conditions, ruleReasons := readPage(t, "reference/conditions.md"), readPage(t, "reference/rules.md")
	known := map[string]bool{}
	explained := func(page, content string, reasons ...string) {
		for _, reason := range reasons {
			known[reason] = true
			if !regexp.MustCompile("(?m)^\\|[^|]*`" + reason + "`").MatchString(content) {
				t.Errorf("docs/%s does not explain %s", page, reason)
			}
		}
	}
	explained("reference/conditions.md", conditions, report.ReasonNoValues)
	explained("reference/conditions.md", conditions, reasonsIn(t, "../query/errors.go")...)
	explained("reference/conditions.md", conditions, reasonsIn(t, "../query/values.go")...)
	explained("reference/rules.md", ruleReasons, reasonsIn(t, "../query/sampleage.go")...)
	explained("reference/rules.md", ruleReasons, reasonsIn(t, "../prometheus/rules/health.go")...)
	explained("reference/rules.md", ruleReasons, reasonsIn(t, "../prometheus/resourcerules/evaluation.go")...)
	explained("reference/rules.md", ruleReasons, reasonsIn(t, "../routes/routes.go")...)
	explained("reference/rules.md", ruleReasons, reasonsIn(t, "../routes/discovery.go")...)
	for _, reason := range reasonsIn(t, "../../api/v1alpha1/conditions.go") {
		known[reason] = true
	}
	_, declared, _ := strings.Cut(conditions, "## Conditions of CustomMetrics and ExternalMetrics")
	_, table, found := strings.Cut(declared, "| reason | means | to do |")
	if !found {
		t.Fatal("there is no table of a declared metric's reasons")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range strings.Split(table, "\n") {
		cell, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		for _, reason := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(cell, -1) {
			if !known[reason[1]] {
				t.Errorf("docs/reference/conditions.md explains %s, which is no reason", reason[1])
			}
		}
	}
}
