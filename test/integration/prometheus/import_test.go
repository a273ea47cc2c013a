// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package prometheus

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/adapterconfig"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
)

// TestImportMarksInvalidRules: the import of prometheus-adapter's configuration warns of the rules
// that serving then reports as invalid, and of no others. Queries that are not PromQL are left to
// serving, as the source's language may be another.
func TestImportMarksInvalidRules(t *testing.T) {
	const rest = `, resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}}`
	for _, rule := range []string{
		`{seriesQuery: x` + rest,
		`{seriesQuery: '{__name__=~"^container_.*",pod!=""}'` + rest,
		`{seriesQuery: x, resources: {template: 'kube_<<.Group>>_<<.Resource>>'}}`,
		`{seriesQuery: x, metricsQuery: "quantile(<<index .LabelValuesByName \"q\">>, <<.Series>>)"` + rest,
		`{seriesQuery: x, metricsQuery: "holt_winters(<<.Series>>[5m], 0.5, 0.5)"` + rest,
		`{seriesQuery: ""` + rest,
		`{seriesQuery: '{}'` + rest,
		`{seriesQuery: 'rate(x[5m])'` + rest,
		`{seriesQuery: '{"a.b"=~"x|",pod!~"y"}'` + rest,
		`{seriesQuery: '{"a.b"=~"x|",pod!~""}'` + rest,
		`{seriesQuery: '{pod=~".*"}'` + rest,
		`{seriesQuery: x, seriesFilters: [{}]` + rest,
		`{seriesQuery: x, seriesFilters: [{is: "("}]` + rest,
		`{seriesQuery: x, name: {matches: "(a)(b)"}` + rest,
		`{seriesQuery: x}`,
		`{seriesQuery: x, resources: {template: "<<.Resource"}}`,
		`{seriesQuery: x, resources: {template: "<<.Group>>"}}`,
		`{seriesQuery: x, resources: {template: "(<<.Resource>>"}}`,
		`{seriesQuery: x, resources: {template: '<<printf "%.3s" .Resource>><<.Resource>>'}}`,
		`{seriesQuery: x, resources: {overrides: {pod: {group: apps}}}}`,
		`{seriesQuery: x, metricsQuery: "<<.Series"` + rest,
		`{seriesQuery: x, metricsQuery: "<<range 1000000000>><<end>>up"` + rest,
		`{seriesQuery: x, metricsQuery: "<<.Labels>>"` + rest,
		`{seriesQuery: x, metricsQuery: "<<if false>>x<<end>>"` + rest,
	} {
		for _, section := range []string{"rules", "externalRules"} {
			var out, warnings bytes.Buffer
			cmd := adapterconfig.NewCommand(genericiooptions.IOStreams{In: strings.NewReader(section + ": [" + rule + "]"), Out: &out, ErrOut: &warnings})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs([]string{"prometheus-adapter", "-", "--prometheus-url=http://x"})
			code := output.ExitCode(cmd.ExecuteContext(t.Context()))
			var backend v1alpha1.MetricsBackend
			if err := yaml.UnmarshalStrict(out.Bytes(), &backend); err != nil {
				t.Fatalf("%s: %v\n%s", rule, err, &out)
			}
			c := rules.NewCatalog(newPods(), clock.RealClock{})
			c.Apply(&backend.Spec)
			want := output.OK
			health := c.Health().Rules
			if slices.ContainsFunc(health, func(h v1alpha1.RuleHealth) bool { return h.State == v1alpha1.RuleInvalid }) {
				want = output.Incomplete
			}
			if code != want {
				t.Errorf("%s of %s: exit code %d, want %d\n%swhile serving says %+v", section, rule, code, want, &warnings, health)
			}
		}
	}
}
