// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

// run imports a file, or what the standard input has, whether or not all of it is carried over.
func run(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := NewCommand(genericiooptions.IOStreams{In: strings.NewReader(in), Out: &out, ErrOut: t.Output()})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"prometheus-adapter"}, args...))
	err := cmd.ExecuteContext(t.Context())
	if errors.Is(err, output.ErrIncomplete) {
		err = nil
	}
	return out.String(), err
}

func TestImport(t *testing.T) {
	const url = "--prometheus-url=http://prometheus.monitoring.svc:9090"
	for name, args := range map[string][]string{
		"config":    {url},
		"manifests": nil,
		"values":    {"--nan-as-zero", "--name=main", "--source=thanos"},
		"refused":   {url},
		"anchors":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := run(t, string(text), append([]string{"-"}, args...)...)
			if err != nil {
				t.Fatal(err)
			}
			plugincluster.Golden(t, name+".golden.yaml", got)
			requireValid(t, got)
			if strings.Contains(got, "secret") {
				t.Error("credentials are shown")
			}
		})
	}
}

// What an import writes has word for word the rules that it read.
func TestImportKeepsTheRules(t *testing.T) {
	text, err := os.ReadFile("testdata/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Rules         []v1alpha1.MetricRule   `json:"rules"`
		ExternalRules []v1alpha1.MetricRule   `json:"externalRules"`
		ResourceRules *v1alpha1.ResourceRules `json:"resourceRules"`
	}
	if err := yaml.UnmarshalStrict(text, &want); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, string(text), "-", "--prometheus-url=http://p:9090")
	if err != nil {
		t.Fatal(err)
	}
	var got v1alpha1.MetricsBackend
	if err := yaml.UnmarshalStrict([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	for _, diff := range []string{
		cmp.Diff(want.Rules, got.Spec.CustomMetrics.Rules),
		cmp.Diff(want.ExternalRules, got.Spec.ExternalMetrics.Rules),
		cmp.Diff(want.ResourceRules, got.Spec.ResourceMetrics.Rules),
	} {
		if diff != "" {
			t.Error(diff)
		}
	}
}

func TestImportRefuses(t *testing.T) {
	const rule = "rules: [{seriesQuery: a, resources: {template: x}}]\n"
	for name, test := range map[string]struct {
		in   string
		args []string
		want string
	}{
		"an unknown field":        {in: "rules:\n- seriesQuery: a\n  metricQuery: b\n", want: "line 3: field metricQuery not found"},
		"a field of ours":         {in: "rules:\n- seriesQuery: a\n  source: x\n", want: "field source not found"},
		"another case":            {in: "rules:\n- SeriesQuery: a\n", want: "field SeriesQuery not found"},
		"a key twice":             {in: "rules:\n- seriesQuery: a\n  seriesQuery: b\n", want: "already defined at line 2"},
		"another type":            {in: "rules:\n- seriesQuery: [a]\n", want: "cannot unmarshal !!seq into string"},
		"no type of ours":         {in: "rules:\n- seriesQuery: a\n  resources: x\n", want: "line 3: cannot unmarshal !!str `x`"},
		"two URLs":                {in: manifests(adapter("a", "rules", "--prometheus-url=http://a:secret@x"), adapter("b", "rules", "--prometheus-url=http://y")), want: "the Deployments a and b have different flags"},
		"nobody's URL":            {in: manifests(adapter("a", "other", "--prometheus-url=http://x")), want: "say which Prometheus is asked"},
		"an unknown section":      {in: rule + "podRules: []\n", want: "field podRules not found"},
		"no YAML":                 {in: "rules: [", want: "read the standard input: yaml:"},
		"nothing":                 {in: "", want: "holds no configuration of prometheus-adapter"},
		"a list":                  {in: "- a\n", want: "line 1: want a mapping"},
		"another document":        {in: "apiVersion: v1\nkind: Pod\n", want: "holds no configuration of prometheus-adapter"},
		"something else":          {in: "hello: world\n", want: "none of rules, externalRules, resourceRules"},
		"a wrong ConfigMap":       {in: "kind: ConfigMap\nmetadata: {name: a}\ndata: {x: \"rules: [{wrong: 1}]\"}", want: "(ConfigMap a, key x): "},
		"two keys":                {in: "kind: ConfigMap\nmetadata: {name: a}\ndata: {x: \"rules: []\", y: \"rules: []\"}", want: "several configurations"},
		"two configurations":      {in: rule + "---\n" + rule, want: "holds 2 configurations"},
		"wrong values":            {in: "rules: {custom: [{wrong: 1}]}", want: "rules in the values of the Helm chart: "},
		"no URL":                  {in: rule, want: "--prometheus-url="},
		"a URL without a scheme":  {in: rule, args: []string{"--prometheus-url=prometheus:9090"}, want: "the URL of Prometheus cannot be used"},
		"a URL that is none":      {in: rule, args: []string{"--prometheus-url=http://a:secret@[x"}, want: "the URL of Prometheus cannot be used"},
		"a name that is none":     {in: rule, args: []string{"--prometheus-url=http://x", "--name=Bad_Name"}, want: `--name "Bad_Name": `},
		"a source's that is none": {in: rule, args: []string{"--prometheus-url=http://x", "--source=a.b"}, want: `--source "a.b": `},
		"two files":               {in: rule, args: []string{"other.yaml"}, want: "name one FILE, or - for the standard input; there are 2"},
		"a URL of another scheme": {in: rule, args: []string{"--prometheus-url=file:///x"}, want: "the URL of Prometheus cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, test.in, append([]string{"-"}, test.args...)...)
			if err == nil || !strings.Contains(err.Error(), test.want) || out != "" {
				t.Fatalf("error %v, want one with %q\n%s", err, test.want, out)
			}
			if strings.Contains(err.Error(), "adapterconfig.") {
				t.Errorf("the error shows types of this program: %v", err)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows credentials: %v", err)
			}
		})
	}
}

// manifests are the ConfigMap rules with a configuration, and others.
func manifests(others ...string) string {
	return strings.Join(append([]string{"kind: ConfigMap\nmetadata: {name: rules}\ndata: {config.yaml: \"rules: [{seriesQuery: a, resources: {template: x}}]\"}\n"}, others...), "---\n")
}

// adapter is a Deployment that mounts a ConfigMap.
func adapter(name, configMap string, args ...string) string {
	return fmt.Sprintf("kind: Deployment\nmetadata: {name: %s}\nspec: {template: {spec: {containers: [{args: [%s]}], volumes: [{configMap: {name: %s}}]}}}\n",
		name, strings.Join(args, ", "), configMap)
}

// What stands beside the configuration in its namespace does not get into it.
func TestImportAmongOthers(t *testing.T) {
	const audit = "kind: ConfigMap\nmetadata: {name: audit}\ndata: {policy.yaml: \"apiVersion: audit.k8s.io/v1\\nkind: Policy\\nrules: [{level: None}]\"}\n"
	const alerts = "kind: ConfigMap\nmetadata: {name: alerts}\ndata: {a: \"rules: [{alert: Down}]\"}\n"
	const url = "--prometheus-url=http://prometheus:9090"
	for name, test := range map[string]struct {
		in               string
		args             []string
		want, wantNot    string
		interval, maxAge time.Duration
	}{
		"a Deployment of something else": {in: manifests(adapter("adapter", "rules", url), adapter("other", "x", "--prometheus-url=http://other")), maxAge: 10 * time.Minute},
		"it comes first":                 {in: manifests(adapter("other", "x", "--prometheus-url=http://other"), adapter("adapter", "rules", url)), maxAge: 10 * time.Minute},
		"by its image":                   {in: manifests("kind: Deployment\nspec: {template: {spec: {containers: [{image: x/prometheus-adapter:v1, args: [" + url + "]}]}}}\n"), maxAge: 10 * time.Minute},
		"two of the same":                {in: manifests(adapter("a", "rules", url), adapter("b", "rules", url)), maxAge: 10 * time.Minute},
		"the command line decides":       {in: manifests(adapter("a", "rules", "--prometheus-url=http://x"), adapter("b", "rules", "--prometheus-url=http://y")), args: []string{url}, maxAge: 10 * time.Minute},
		"flags of its own":               {in: manifests(adapter("a", "rules", url, "--metrics-relist-interval=1m")), interval: time.Minute},
		"an audit policy":                {in: manifests(audit, adapter("a", "rules", url)), maxAge: 10 * time.Minute, wantNot: "audit"},
		"rules of another kind":          {in: manifests(alerts, adapter("a", "rules", url)), maxAge: 10 * time.Minute, want: "left out"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, test.in, append([]string{"-"}, test.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			var got v1alpha1.MetricsBackend
			if err := yaml.UnmarshalStrict([]byte(out), &got); err != nil {
				t.Fatal(err)
			}
			want := v1alpha1.PrometheusSource{URL: "http://prometheus:9090"}
			if test.interval > 0 {
				want.SeriesInterval = &metav1.Duration{Duration: test.interval}
			}
			if test.maxAge > 0 {
				want.SeriesLookback = &metav1.Duration{Duration: test.maxAge}
			}
			if diff := cmp.Diff(&want, got.Spec.Sources[0].Prometheus); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(out, test.want) || test.wantNot != "" && strings.Contains(out, test.wantNot) {
				t.Errorf("want %q, and no %q in\n%s", test.want, test.wantNot, out)
			}
		})
	}
}

// Of external metrics prometheus-adapter makes no 0 of NaN, but a number that nobody wants.
func TestImportNaN(t *testing.T) {
	out, err := run(t, "externalRules: [{seriesQuery: a}]", "-", "--prometheus-url=http://p:9090", "--nan-as-zero")
	if err != nil || strings.Contains(out, "nanAsZero") || !strings.Contains(out, "# - one NaN or infinite series of an external metric: ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestImportOfNamesThatDifferInCase: client-go asks for external metrics in lower case.
func TestImportOfNamesThatDifferInCase(t *testing.T) {
	for name, test := range map[string]struct{ rules, want string }{
		"series":              {"externalRules: [{seriesQuery: QueueDepth}, {seriesQuery: x}, {seriesQuery: 'queuedepth{a=\"b\"}'}]", "rules[0] and rules[2]: the metrics QueueDepth and queuedepth differ in case alone"},
		"name as a matcher":   {"externalRules: [{seriesQuery: '{__name__=\"LAG\",a=\"b\"}'}, {seriesQuery: lag}]", "rules[0] and rules[1]: the metrics LAG and lag differ"},
		"series and constant": {"externalRules: [{seriesQuery: Lag}, {seriesQuery: x, name: {matches: .*, as: LAG}}]", "rules[0] and rules[1]: the metrics Lag and LAG differ"},
		"same name":           {rules: "externalRules: [{seriesQuery: Lag}, {seriesQuery: 'Lag{a=\"b\"}'}]"},
		"names of series":     {rules: "externalRules: [{seriesQuery: Lag}, {seriesQuery: lag, name: {matches: (.*), as: $1_rate}}]"},
		"several series":      {rules: "externalRules: [{seriesQuery: Lag}, {seriesQuery: '{__name__=~\"lag|Lag\"}'}]"},
		"of objects":          {rules: "rules: [{seriesQuery: Lag, resources: {template: <<.Resource>>}}, {seriesQuery: lag, resources: {template: <<.Resource>>}}]"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, test.rules, "-", "--prometheus-url=http://p:9090")
			if err != nil {
				t.Fatal(err)
			}
			comments := strings.Join(strings.Fields(strings.ReplaceAll(out, "\n#", " ")), " ")
			if !strings.Contains(comments, test.want) || strings.Contains(comments, "in case alone") != (test.want != "") {
				t.Errorf("want %q in\n%s", test.want, out)
			}
		})
	}
}

// The import says of each bound what the CRD refuses, and nothing of what it takes.
func TestImportTellsOfBounds(t *testing.T) {
	for name, test := range map[string]struct {
		most int
		rule func(n int) string
	}{
		"seriesQuery":        {maxQuery, func(n int) string { return "seriesQuery: " + strings.Repeat("ä", n) }},
		"metricsQuery":       {maxQuery, func(n int) string { return "metricsQuery: " + strings.Repeat("a", n) }},
		"name.as":            {maxTemplate, func(n int) string { return "name: {as: " + strings.Repeat("a", n) + "}" }},
		"name.matches":       {maxRegexp, func(n int) string { return "name: {matches: " + strings.Repeat("a", n) + "}" }},
		"resources.template": {maxTemplate, func(n int) string { return "resources: {template: " + strings.Repeat("a", n) + "}" }},
		"seriesFilters":      {maxFilters, func(n int) string { return "seriesFilters: [" + strings.Repeat("{is: a},", n) + "]" }},
		"seriesFilters[0]":   {maxRegexp, func(n int) string { return "seriesFilters: [{is: " + strings.Repeat("a", n) + "}]" }},
		"resources.overrides": {maxOverrides, func(n int) string {
			var all strings.Builder
			for i := range n {
				fmt.Fprintf(&all, "l%d: {resource: pod},", i)
			}
			return "resources: {overrides: {" + all.String() + "}}"
		}},
		"resources.overrides[x]": {maxName, func(n int) string { return "resources: {overrides: {x: {resource: " + strings.Repeat("a", n) + "}}}" }},
	} {
		t.Run(name, func(t *testing.T) {
			for n, refused := range map[int]bool{test.most: false, test.most + 1: true} {
				out, err := run(t, "externalRules: [{"+test.rule(n)+"}]", "-", "--prometheus-url=http://p:9090")
				if err != nil {
					t.Fatal(err)
				}
				told := strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(out, "\n#", " ")), " "), "externalRules[0]."+name)
				if told != refused || (len(refusals(t, out)) > 0) != refused {
					t.Errorf("with %d: told %v, the CRD says %v, want refused %v", n, told, refusals(t, out), refused)
				}
			}
		})
	}
}

func TestImportOfFiles(t *testing.T) {
	if _, err := run(t, "", filepath.Join(t.TempDir(), "none.yaml")); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
	long := filepath.Join(t.TempDir(), "long.yaml")
	if err := os.WriteFile(long, bytes.Repeat([]byte("# filler\n"), maxFile/9+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "", long); err == nil || !strings.Contains(err.Error(), "longer than 16 MiB") {
		t.Errorf("a file without end: %v", err)
	}
}

// FuzzFind: no file makes it panic, and what it takes can be written and read again.
func FuzzFind(f *testing.F) {
	for _, name := range []string{"config", "manifests", "values", "refused", "anchors"} {
		text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("rules: &a [*a]"))
	f.Add([]byte("x: &a {<<: [*a, {b: c}]}\nrules: {<<: *a}"))
	f.Add([]byte("rules: {custom: !!null}\nprometheus: []\nextraArguments: {a: b}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		found, err := find(text, "fuzz")
		if err != nil {
			return
		}
		found.source.URL = "http://prometheus:9090"
		if err := found.source.check(); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := write(&out, found, options{name: "cluster", sourceName: "prometheus"}); err != nil {
			t.Fatal(err)
		}
		var backend v1alpha1.MetricsBackend
		if err := yaml.UnmarshalStrict(out.Bytes(), &backend); err != nil {
			t.Fatalf("%v\n%s", err, out.Bytes())
		}
	})
}

// A configuration without rules is none that a cluster takes, and it is said.
func TestNoRules(t *testing.T) {
	out, err := run(t, "rules: []\n", "-", "--prometheus-url=http://x")
	if err != nil {
		t.Fatal(err)
	}
	if said := strings.Contains(strings.ReplaceAll(out, "\n#   ", " "), "has nothing to serve, and the cluster refuses it"); !said {
		t.Errorf("not said:\n%s", out)
	}
	if refused := strings.Join(refusals(t, out), "\n"); !strings.Contains(refused, "nothing to serve") {
		t.Errorf("refused for %q", refused)
	}
}
