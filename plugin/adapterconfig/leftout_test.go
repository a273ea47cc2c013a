// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// TestImportLeavesOut: what cannot be carried over is marked in the output, warned of on the error
// stream, and an exit code of its own.
func TestImportLeavesOut(t *testing.T) {
	const resources = "\n  resources: {template: <<.Resource>>}"
	for name, test := range map[string]struct {
		in string
		// comment is above the rule, and warning on the error stream; empty if nothing is left out.
		comment, warning string
	}{
		"nothing":                    {in: "rules:\n- seriesQuery: a" + resources},
		"labels by value":            {in: "externalRules:\n- seriesQuery: a\n  metricsQuery: a{x=\"<<slice (index .LabelValuesByName \"x\") 0 1>>\"}"},
		"a template with the group":  {in: "rules:\n- seriesQuery: a\n  resources: {template: 'k_<<if .Group>><<.Group>>_<<end>><<.Resource>>'}"},
		"everything":                 {"rules:\n- seriesQuery: '{__name__=~\".*\"}'" + resources, "cannot be carried over: seriesQuery selects everything", "spec.customMetrics.rules[0]: cannot be carried over: seriesQuery selects everything"},
		"everything, external":       {"externalRules:\n- seriesQuery: b\n- seriesQuery: '{}'", "cannot be carried over: seriesQuery selects everything", "spec.externalMetrics.rules[1]: cannot be carried over: seriesQuery selects everything"},
		"no selector":                {"rules:\n- seriesQuery: rate(a[5m])" + resources, "cannot be carried over: seriesQuery", "spec.customMetrics.rules[0]: cannot be carried over: seriesQuery"},
		"no seriesQuery":             {"rules:\n- seriesQuery: ''" + resources, "cannot be carried over: seriesQuery is empty", "rules[0]: cannot be carried over: seriesQuery is empty"},
		"labels without a resource":  {"rules:\n- seriesQuery: a\n  resources: {template: <<.Group>>}", "cannot be carried over: resources.template: <<.Resource>> is missing", "resources.template"},
		"labels that are cut":        {"rules:\n- seriesQuery: a\n  resources: {template: '<<printf \"%.3s\" .Resource>><<.Resource>>'}", "cannot be carried over: resources.template", "resources.template"},
		"a label of nothing":         {"rules:\n- seriesQuery: a\n  resources: {overrides: {pod: {group: apps}}}", "cannot be carried over: resources.overrides[pod] names no resource", "overrides[pod]"},
		"a field of another adapter": {"rules:\n- seriesQuery: a\n  metricsQuery: <<.Labels>>" + resources, "cannot be carried over: metricsQuery", "Labels"},
		"a template without end":     {"rules:\n- seriesQuery: a\n  metricsQuery: <<range 1000000000>><<end>>up" + resources, "cannot be carried over: metricsQuery: it takes too long", "takes too long"},
		"a rule that is refused":     {"rules:\n- seriesQuery: a", "prometheus-adapter refuses this rule: resources needs", "spec.customMetrics.rules[0]: prometheus-adapter refuses this rule: resources needs"},
		"resource rules": {
			"resourceRules:\n  cpu: {containerQuery: <<.Pods>>, nodeQuery: a, containerLabel: c}\n  memory: {containerQuery: a, nodeQuery: a, containerLabel: c}",
			"cannot be carried over: cpu.containerQuery", "spec.resourceMetrics.rules: cannot be carried over: cpu.containerQuery",
		},
		"a token": {
			manifests(adapter("a", "rules", "--prometheus-url=http://p:9090", "--prometheus-token-file=/x")),
			"--prometheus-token-file: tokens of the ServiceAccount metrics-serving-NAME-source", "--prometheus-token-file: tokens of the ServiceAccount",
		},
		"the cluster's account": {
			manifests(adapter("a", "rules", "--prometheus-url=http://p:9090", "--prometheus-auth-incluster=true")),
			"--prometheus-auth-incluster: tokens of the ServiceAccount", "--prometheus-auth-incluster: tokens of the ServiceAccount",
		},
		"a kubeconfig": {
			manifests(adapter("a", "rules", "--prometheus-url=http://p:9090", "--prometheus-auth-config=/x")),
			"--prometheus-auth-config: put the file's content into a Secret", "--prometheus-auth-config: put",
		},
		"a default of the chart": {"prometheus: {url: http://p}\nrules: {custom: []}", "rules.default: the rules that the chart adds", "rules.default: "},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			cmd := NewCommand(genericiooptions.IOStreams{In: strings.NewReader(test.in), Out: &out, ErrOut: &errs})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs([]string{"prometheus-adapter", "-", "--prometheus-url=http://p:9090"})
			err := cmd.ExecuteContext(t.Context())
			code := output.OK
			if test.comment != "" {
				code = output.Incomplete
			}
			if output.ExitCode(err) != code || (err != nil && !errors.Is(err, output.ErrIncomplete)) {
				t.Errorf("exit code %d, want %d: %v", output.ExitCode(err), code, err)
			}
			comments := strings.Join(strings.Fields(strings.ReplaceAll(out.String(), "#", " ")), " ")
			if !strings.Contains(comments, test.comment) || strings.Contains(comments, "cannot be carried over") && code == output.OK {
				t.Errorf("want a comment %q in\n%s", test.comment, &out)
			}
			if !strings.Contains(errs.String(), test.warning) || (errs.Len() > 0) != (test.warning != "") {
				t.Errorf("want a warning %q in\n%s", test.warning, &errs)
			}
			for line := range strings.Lines(errs.String()) {
				if !strings.HasPrefix(line, "warning: ") {
					t.Errorf("no warning: %s", line)
				}
			}
		})
	}
}

// TestAuthenticationByFlags: the flags for tokens of the adapter's account become serviceAccountToken.
func TestAuthenticationByFlags(t *testing.T) {
	account := map[string]struct{}{"serviceAccountToken": {}}
	for name, tc := range map[string]struct {
		flag string
		want map[string]struct{}
	}{
		"file":             {"--prometheus-token-file=/var/run/secrets/kubernetes.io/serviceaccount/token", account},
		"account":          {"--prometheus-auth-incluster", account},
		"account, set":     {"--prometheus-auth-incluster=true", account},
		"account, not set": {"--prometheus-auth-incluster=false", nil},
		"kubeconfig":       {"--prometheus-auth-config=/etc/kubeconfig", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var s source
			s.readArguments([]string{tc.flag})
			if diff := cmp.Diff(tc.want, s.Authentication); diff != "" {
				t.Errorf("authentication (-want +got):\n%s", diff)
			}
		})
	}
}
