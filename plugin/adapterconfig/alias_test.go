// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An anchor may stand anywhere in a document, and what names it is imported as if it were written out.
func TestImportResolvesAliases(t *testing.T) {
	const query = "custom: [{seriesQuery: a, resources: {overrides: {pod: {resource: pod}, ns: {resource: namespace}}}}]"
	for name, test := range map[string]struct {
		in, plain string
	}{
		"scalars": {
			in:    "x: [&port 9091, &url http://p, &path /x, &no false, &often 1m]\nprometheus: {url: *url, port: *port, path: *path}\nmetricsRelistInterval: *often\nrules: {default: *no, " + query + "}",
			plain: "prometheus: {url: http://p, port: 9091, path: /x}\nmetricsRelistInterval: 1m\nrules: {default: false, " + query + "}",
		},
		"all rules": {
			in:    "x: &rules {default: false, " + query + "}\nprometheus: {url: http://p}\nrules: *rules",
			plain: "prometheus: {url: http://p}\nrules: {default: false, " + query + "}",
		},
		"a part of an umbrella chart": {
			in:    "x: &labels {pod: {resource: pod}}\nprometheus-adapter:\n  prometheus: {url: http://p}\n  rules: {default: false, custom: [{seriesQuery: a, resources: {overrides: {<<: *labels, ns: {resource: namespace}}}}]}",
			plain: "prometheus: {url: http://p}\nrules: {default: false, " + query + "}",
		},
		"what is written wins over what is merged, and the first merged over the next": {
			in: "x: [&a {url: http://a, port: 1}, &b {url: http://b, port: 2, path: /b}]\nprometheus: {url: http://p, <<: [*a, *b]}\nrules: {default: false, " + query + "}",
			// The last one of them has the path.
			plain: "prometheus: {url: http://p, port: 1, path: /b}\nrules: {default: false, " + query + "}",
		},
		"merged twice over": {
			in:    "x: [&a {port: 1}, &b {<<: *a, path: /b}]\nprometheus: {<<: *b, url: http://p}\nrules: {default: false, " + query + "}",
			plain: "prometheus: {url: http://p, port: 1, path: /b}\nrules: {default: false, " + query + "}",
		},
		"arguments of the chart": {
			in:    "x: &args [--metrics-max-age=2h]\nprometheus: {url: http://p}\nrules: {default: false, " + query + "}\nextraArguments: *args",
			plain: "prometheus: {url: http://p}\nrules: {default: false, " + query + "}\nextraArguments: [--metrics-max-age=2h]",
		},
		"items of a list": {
			in: "kind: List\nitems:\n- {kind: ConfigMap, metadata: {name: &name rules}, data: {config.yaml: 'rules: [{seriesQuery: a, resources: {template: x}}]'}}\n" +
				"- {kind: Deployment, metadata: {name: a}, spec: {template: {spec: {containers: [{args: [--prometheus-url=http://p]}], volumes: [{configMap: {name: *name}}]}}}}",
			plain: manifests(adapter("a", "rules", "--prometheus-url=http://p")),
		},
		"a merge key in quotes is none": {
			in:    "x: &a {y: z}\nprometheus: {url: http://p, \"<<\": *a}\nrules: {default: false, " + query + "}",
			plain: "prometheus: {url: http://p}\nrules: {default: false, " + query + "}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := run(t, test.in, "-")
			if err != nil {
				t.Fatal(err)
			}
			want, err := run(t, test.plain, "-")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestImportRefusesAliases(t *testing.T) {
	// Each line is ten times the one before.
	bomb := "x0: &x0 [aaaaaaaaaa]\n"
	for _, i := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"} {
		before := "*x" + string(i[0]-1)
		bomb += "x" + i + ": &x" + i + " [" + strings.Repeat(before+",", 10) + "]\n"
	}
	long := "x: &x " + strings.Repeat("a", 1<<20) + "\ny: [" + strings.Repeat("*x,", 17) + "]\n"
	// Each document, and each text in a ConfigMap, is within the limit.
	part := "x: &x " + strings.Repeat("a", 1<<20) + "\ny: [" + strings.Repeat("*x,", 9) + "]\n"
	configMap := func(name string) string {
		return "kind: ConfigMap\nmetadata: {name: " + name + "}\ndata:\n  a: |\n    " + strings.ReplaceAll(part, "\n", "\n    ") + "rules: []\n"
	}
	for name, test := range map[string]struct{ in, want string }{
		"documents":          {"kind: X\n" + part + "---\nkind: X\n" + part, "aliases make the file longer than 16 MiB"},
		"ConfigMaps":         {configMap("a") + "---\n" + configMap("b"), "aliases make the file longer than 16 MiB"},
		"a bomb":             {bomb + "rules: {custom: []}", "aliases make the file longer than 16 MiB"},
		"a long text":        {long + "rules: {custom: []}", "aliases make the file longer than 16 MiB"},
		"itself":             {"rules: {custom: &a [*a]}", "line 1: aliases make the file longer than 16 MiB, or an anchor contains itself"},
		"itself, by a merge": {"rules: {custom: []}\nx: &a\n  <<: *a", "contains itself"},
		"no mapping":         {"x: &a [b]\nrules:\n  <<: *a\n  custom: []", "map merge requires map"},
		"no anchor":          {"rules: *a", "unknown anchor 'a' referenced"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := run(t, test.in, "-"); err == nil || !strings.Contains(err.Error(), test.want) || out != "" {
				t.Errorf("error %v, want one with %q\n%s", err, test.want, out)
			}
		})
	}
}
