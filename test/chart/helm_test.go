// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	loader3 "helm.sh/helm/v3/pkg/chart/loader"
	util3 "helm.sh/helm/v3/pkg/chartutil"
	engine3 "helm.sh/helm/v3/pkg/engine"
	lint3 "helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	util4 "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

// helm is a major version of Helm. render returns the files that helm install would apply, by name.
type helm struct {
	render func(dir, namespace string, values map[string]any) (map[string]string, error)
	lint   func(values map[string]any) []string
}

func helms() map[string]helm {
	return map[string]helm{"Helm 3": {render3, lintBy3}, "Helm 4": {render4, lintBy4}}
}

func render3(dir, namespace string, values map[string]any) (map[string]string, error) {
	loaded, err := loader3.Load(dir)
	if err != nil {
		return nil, err
	}
	if err := util3.ProcessDependenciesWithMerge(loaded, values); err != nil {
		return nil, err
	}
	all, err := util3.ToRenderValues(loaded, values, util3.ReleaseOptions{
		Name: "a-release", Namespace: namespace, Revision: 1, IsInstall: true,
	}, util3.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine3.Render(loaded, all)
}

func render4(dir, namespace string, values map[string]any) (map[string]string, error) {
	loaded, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	if err := util4.ProcessDependencies(loaded, values); err != nil {
		return nil, err
	}
	all, err := util.ToRenderValues(loaded, values, common.ReleaseOptions{
		Name: "a-release", Namespace: namespace, Revision: 1, IsInstall: true,
	}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(loaded, all)
}

func lintBy3(values map[string]any) (messages []string) {
	for _, message := range lint3.All(directory, values, namespace, true).Messages {
		messages = append(messages, message.Error())
	}
	return messages
}

func lintBy4(values map[string]any) (messages []string) {
	for _, message := range lint.RunAll(directory, values, namespace).Messages {
		messages = append(messages, message.Error())
	}
	return messages
}

// unmarshal returns values as Helm gets them from a file.
func unmarshal(t *testing.T, values string) map[string]any {
	t.Helper()
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	return given
}

func TestLint(t *testing.T) {
	for version, helm := range helms() {
		for name, values := range map[string]string{"defaults": "{}", "all": everything} {
			t.Run(version+", "+name, func(t *testing.T) {
				for _, message := range helm.lint(unmarshal(t, values)) {
					if !strings.Contains(message, "icon is recommended") {
						t.Error(message)
					}
				}
			})
		}
	}
}

// Both versions of Helm render the same objects.
func TestHelm3RendersTheSame(t *testing.T) {
	for name, values := range map[string]string{"defaults": "{}", "all": everything} {
		t.Run(name, func(t *testing.T) {
			files, err := render3(directory, namespace, unmarshal(t, values))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plain(mustRender(t, values)), plain(objectsIn(t, files))); diff != "" {
				t.Errorf("(-Helm 4 +Helm 3):\n%s", diff)
			}
		})
	}
}

// Another chart may include this one on a condition, and give it the global values that Helm passes on.
func TestConditionalDependency(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "charts/metrics-backend-operator"), os.DirFS(directory)); err != nil {
		t.Fatal(err)
	}
	const parent = `
apiVersion: v2
name: platform
version: 1.0.0
dependencies:
- {name: metrics-backend-operator, version: 0.0.0-dev, condition: metrics-backend-operator.enabled}
`
	if err := os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte(parent), 0o600); err != nil {
		t.Fatal(err)
	}
	for version, helm := range helms() {
		for enabled, want := range map[string]int{"true": len(mustRender(t, "replicas: 2")), "false": 0} {
			t.Run(version+", enabled: "+enabled, func(t *testing.T) {
				values := "{global: {region: a}, metrics-backend-operator: {enabled: " + enabled + ", replicas: 2}}"
				files, err := helm.render(dir, namespace, unmarshal(t, values))
				if err != nil {
					t.Fatal(err)
				}
				if got := len(objectsIn(t, files)); got != want {
					t.Errorf("%d objects, want %d", got, want)
				}
			})
		}
	}
}
