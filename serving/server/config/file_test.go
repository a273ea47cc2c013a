// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const manifestHead = "apiVersion: metricsbackend.io/v1alpha1\nkind: MetricsBackend\nmetadata: {name: cluster}\n"

func backendManifest(interval string) string {
	return manifestHead + "spec: {resourceMetrics: {scrape: {interval: " + interval + "}}}\n"
}

// TestDecodeManifest: documents beside the MetricsBackend are declared metrics and policies.
func TestDecodeManifest(t *testing.T) {
	const head = "---\napiVersion: metricsbackend.io/v1alpha1\n"
	const metric = head + "kind: ExternalMetric\nmetadata: {name: m, namespace: shop}\nspec: {query: up}\n"
	const custom = head + "kind: CustomMetric\nmetadata: {name: c, namespace: shop}\nspec: {query: up, describedObject: {resource: pods, nameLabel: pod}}\n"
	const policy = head + "kind: ExternalMetricsPolicy\nmetadata: {name: p}\nspec: {rules: [{metric: .*, deny: true}]}\n"
	tests := map[string]struct {
		content string
		// wantInterval is that of the decoded object.
		wantInterval time.Duration
		want         declared
		wantErr      string
	}{
		"YAML":                         {content: backendManifest("20s"), wantInterval: 20 * time.Second},
		"JSON":                         {content: `{"apiVersion":"metricsbackend.io/v1alpha1","kind":"MetricsBackend","metadata":{"name":"cluster"},"spec":{"resourceMetrics":{"scrape":{"interval":"20s"}}}}`, wantInterval: 20 * time.Second},
		"comments and empty documents": {content: "# licence\n---\n" + backendManifest("20s") + "---\n# the end\n", wantInterval: 20 * time.Second},
		"an unknown field":             {content: manifestHead + "spec: {resourceMetrics: {scrape: {intervall: 20s}}}", wantErr: `unknown field "spec.resourceMetrics.scrape.intervall"`},
		"a field twice":                {content: manifestHead + "spec: {}\nspec: {}\n", wantErr: `"spec"`},
		"a duration that is none":      {content: backendManifest("soon"), wantErr: "soon"},
		"another kind":                 {content: "apiVersion: v1\nkind: Pod\n", wantErr: "they are v1 and Pod"},
		"another version":              {content: "apiVersion: metricsbackend.io/v1\nkind: MetricsBackend\n", wantErr: "apiVersion must be metricsbackend.io/v1alpha1"},
		"a list":                       {content: "apiVersion: metricsbackend.io/v1alpha1\nkind: MetricsBackendList\nitems: []\n", wantErr: "but is MetricsBackendList"},
		"no kind":                      {content: "spec: {}\n", wantErr: "kind MetricsBackend"},
		"two objects":                  {content: backendManifest("20s") + "---\n" + backendManifest("30s"), wantErr: "holds several"},
		"empty":                        {content: "\n# nothing\n", wantErr: "the file is empty"},
		"not YAML":                     {content: "{", wantErr: "yaml"},
		"everything": {content: policy + "---\n" + backendManifest("20s") + metric + custom, wantInterval: 20 * time.Second, want: declared{
			Policies: []string{"/p"}, Custom: []string{"shop/c"}, External: []string{"shop/m"},
		}},
		"no MetricsBackend":            {content: metric, wantErr: "must hold the manifest of a MetricsBackend"},
		"no namespace":                 {content: backendManifest("20s") + strings.Replace(metric, ", namespace: shop", "", 1), wantErr: `ExternalMetric "m" has no metadata.namespace`},
		"no name":                      {content: backendManifest("20s") + strings.Replace(policy, "name: p", "", 1), wantErr: "has no metadata.name"},
		"refused by the schema":        {content: backendManifest("11m"), wantErr: "spec.resourceMetrics.scrape.interval: Invalid value: scrape.interval must be between 1s and 10m"},
		"refused by a rule of another": {content: backendManifest("20s") + strings.Replace(policy, ", deny: true", "", 1), wantErr: "each rule needs selector"},
		"a password in a URL": {
			content: manifestHead + "spec: {customMetrics: {}, sources: [{name: a, prometheus: {url: 'https://u:hunter2@h'}}]}",
			wantErr: "MetricsBackend cluster: spec.sources[0].prometheus.url: Invalid value: url must be http:// or https://",
		},
		"a list that is a set":        {content: manifestHead + "spec: {resourceMetrics: {versions: [v1, v1]}}", wantErr: "spec.resourceMetrics.versions[1]: Duplicate value"},
		"too large a number":          {content: manifestHead + "spec: {serving: {replicas: 11}, resourceMetrics: {}}", wantErr: "spec.serving.replicas"},
		"an unknown field of another": {content: backendManifest("20s") + strings.Replace(metric, "query: up", "query: up, quarry: down", 1), wantErr: "quarry"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m, err := decodeManifest([]byte(tc.content))
			if !succeeded(t, err, tc.wantErr) {
				return
			}
			if got := m.backend.Spec.ResourceMetrics.Scrape.Interval.Duration; got != tc.wantInterval {
				t.Errorf("interval %s, want %s", got, tc.wantInterval)
			}
			got := &fakeTarget{}
			target := got.target()
			target.declare(t.Context(), &m.declarations)
			tc.want.PoliciesSet, tc.want.MetricsSet = true, true
			if diff := cmp.Diff(tc.want, got.declared); diff != "" {
				t.Errorf("declared (-want +got):\n%s", diff)
			}
			if len(m.custom) > 0 && m.custom[0].Spec.DuplicatesPolicy != v1alpha1.DuplicatesReject {
				t.Error("the defaults are not filled in")
			}
		})
	}
}

func FuzzDecodeManifest(f *testing.F) {
	f.Add([]byte(backendManifest("20s")))
	f.Add([]byte("---\n---\n"))
	f.Add([]byte(`{"apiVersion":"metricsbackend.io/v1alpha1","kind":"MetricsBackend","metadata":{"name":"cluster"},"spec":null}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := decodeManifest(content)
		if err != nil {
			return
		}
		if m == nil || m.backend == nil {
			t.Fatal("neither an object nor an error")
		}
		// SettingsFrom returns settings or an error, and never panics.
		if s, err := SettingsFrom(&m.backend.Spec); err == nil && s.Kubelet.Interval <= 0 {
			t.Errorf("interval %s is accepted", s.Kubelet.Interval)
		}
	})
}

func TestFileLoad(t *testing.T) {
	tests := map[string]struct {
		content string
		wantErr string
	}{
		"good":             {content: backendManifest("20s")},
		"unusable":         {content: backendManifest("2h"), wantErr: "must be between 1s and 10m"},
		"not a manifest":   {content: "hello", wantErr: "read --backend-file"},
		"the file is gone": {wantErr: "no such file"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "backend.yaml")
			if tc.content != "" {
				write(t, path, tc.content)
			}
			_, _, err := (&fileWatcher{path: path}).load()
			succeeded(t, err, tc.wantErr)
		})
	}
}

// loadedFile returns a watcher that has loaded a file with an interval of 20s, and the
// intervals that it applies afterwards.
func loadedFile(t *testing.T) (*fileWatcher, *[]time.Duration) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backend.yaml")
	write(t, path, backendManifest("20s"))
	applied := new([]time.Duration)
	file := &fileWatcher{path: path, apply: func(_ context.Context, m *manifest) {
		*applied = append(*applied, m.backend.Spec.ResourceMetrics.Scrape.Interval.Duration)
	}}
	if _, _, err := file.load(); err != nil {
		t.Fatalf("load: %v", err)
	}
	return file, applied
}

func TestFilePoll(t *testing.T) {
	file, applied := loadedFile(t)
	path := file.path
	// After each step the file is read twice.
	steps := []struct {
		name   string
		change func()
		want   []time.Duration
	}{
		{"as it was", func() {}, nil},
		{"changed", func() { write(t, path, backendManifest("30s")) }, []time.Duration{30 * time.Second}},
		{"broken", func() { write(t, path, backendManifest("soon")) }, nil},
		{"gone", func() { _ = os.Remove(path) }, nil},
		{"back as it was", func() { write(t, path, backendManifest("30s")) }, []time.Duration{30 * time.Second}},
		{"replaced by a rename", func() {
			write(t, path+".new", backendManifest("40s"))
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}, []time.Duration{40 * time.Second}},
	}
	for _, step := range steps {
		*applied = nil
		step.change()
		file.poll(t.Context())
		file.poll(t.Context())
		if diff := cmp.Diff(step.want, *applied); diff != "" {
			t.Errorf("%s: applied (-want +got):\n%s", step.name, diff)
		}
	}
}

func TestFileIsReadPeriodically(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, applied := loadedFile(t)
		write(t, file.path, backendManifest("25s"))
		ctx, cancel := context.WithTimeout(t.Context(), 3*filePeriod)
		defer cancel()
		file.run(ctx)
		if diff := cmp.Diff([]time.Duration{25 * time.Second}, *applied); diff != "" {
			t.Errorf("applied (-want +got):\n%s", diff)
		}
	})
}

// succeeded reports whether there is no error. An error must mention want, and there must be
// none if want is empty.
func succeeded(t *testing.T, err error, want string) bool {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Fatalf("error %v, want one that mentions %q", err, want)
	}
	return err == nil
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatalf("write %s: %v", path, err)
	}
}
