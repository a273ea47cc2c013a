// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// The committed templates must match config/.
func TestChartIsCurrent(t *testing.T) {
	want, err := render(root)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	// This one is not a template.
	if want[ruleFile], err = prometheusRule(root); err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile(filepath.Join(root, ruleFile))
	if err != nil {
		t.Fatal(err)
	}
	got[ruleFile] = string(committed)
	present, err := filepath.Glob(filepath.Join(root, templates, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range present {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(path); want[name] != "" || strings.HasPrefix(string(content), made) {
			got[name] = string(content)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("run make generate and commit the result (-config/ +%s):\n%s", templates, diff)
	}
}

// A template whose source is gone is removed; one written by hand stays.
func TestWriteRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	for path, content := range map[string]string{
		"config/default/kustomization.yaml":    "resources: [objects.yaml]",
		"config/default/objects.yaml":          "kind: Role\nmetadata:\n  labels:\n    a: b\n",
		"config/monitoring/kustomization.yaml": "resources: [prometheusrule.yaml]",
		rulesFile:                              "groups: []\n",
		templates + "/former-role.yaml":        strings.ReplaceAll(header, "%s", "config/former/role.yaml"),
		templates + "/by-hand.yaml":            "kind: ConfigMap\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	present, err := os.ReadDir(filepath.Join(dir, templates))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range present {
		names = append(names, entry.Name())
	}
	if diff := cmp.Diff([]string{"by-hand.yaml", "default-objects.yaml", "monitoring-prometheusrule.yaml"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A change of config/ that a template would silently miss is an error.
func TestTemplateOfRefuses(t *testing.T) {
	cases := map[string]struct{ source, content, want string }{
		"a Deployment without the known text": {"config/manager/deployment.yaml", "kind: Deployment\nmetadata:\n  labels:\n    a: b\n", "holds 0 times"},
		"text that a template evaluates":      {"config/rbac/users.yaml", "kind: Role\n# {{ .Values }}\n", "holds {{"},
		"an object without labels":            {"config/rbac/users.yaml", "kind: Role\nmetadata:\n  name: a\n", "object 1 has no metadata.labels"},
		"one of two without labels":           {"config/rbac/users.yaml", "kind: Role\nmetadata:\n  labels:\n    a: b\n---\nkind: Role\n", "object 2 has no metadata.labels"},
		"labels of pods only":                 {"config/rbac/users.yaml", "kind: Job\nmetadata:\n  name: a\nspec:\n  labels:\n    a: b\n", "object 1 has no metadata.labels"},
		"another object for serving":          {"config/rbac/serving-namespace/role.yaml", "kind: Role\nmetadata:\n  name: a\n  labels:\n    a: b\n", "not all 1 objects"},
		"a CRD without annotations":           {"config/crd/bases/group_kinds.yaml", "kind: CustomResourceDefinition\nmetadata:\n  name: a\n", "holds 0 times"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, _, err := templateOf(tc.source, tc.content)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}
