// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// filePeriod is the interval in which --backend-file is read. Unlike file notifications,
// reading works on every file system and through the symbolic links of a mounted ConfigMap.
const filePeriod = 2 * time.Second

// fileWatcher watches a manifest on disk.
type fileWatcher struct {
	path string
	// apply is called after each change of the file.
	apply func(context.Context, *manifest)
	// content and failure are the results of the last read.
	content []byte
	failure string
}

// load reads the file for the first time. A manifest that cannot be used is an error at the
// start.
func (f *fileWatcher) load() (Settings, declarations, error) {
	m, err := f.reread()
	if err != nil {
		return Settings{}, declarations{}, fmt.Errorf("read --backend-file %s: %w", f.path, err)
	}
	s, err := settingsOf(m.backend)
	if err != nil {
		return Settings{}, declarations{}, fmt.Errorf("--backend-file %s: %w", f.path, err)
	}
	return s, m.declarations, nil
}

// run applies each change of the file until the context ends.
func (f *fileWatcher) run(ctx context.Context) { wait.UntilWithContext(ctx, f.poll, filePeriod) }

// poll reads the file once. An error is logged once and changes nothing.
func (f *fileWatcher) poll(ctx context.Context) {
	m, err := f.reread()
	switch {
	case err == nil && m == nil:
		return
	case err == nil:
		f.failure = ""
		f.apply(ctx, m)
	case err.Error() != f.failure:
		f.failure = err.Error()
		klog.FromContext(ctx).Error(err, "Cannot read the MetricsBackend; the current settings stay", "path", f.path)
	}
}

// reread returns nil if the file has not changed.
func (f *fileWatcher) reread() (*manifest, error) {
	content, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	if f.content != nil && f.failure == "" && bytes.Equal(content, f.content) {
		return nil, nil
	}
	m, err := decodeManifest(content)
	if err != nil {
		return nil, err
	}
	f.content = content
	return m, nil
}

// manifest is the content of a file.
type manifest struct {
	backend *v1alpha1.MetricsBackend
	declarations
}

// declarations are the metrics and policies declared beside a MetricsBackend.
type declarations struct {
	custom   []*v1alpha1.CustomMetric
	external []*v1alpha1.ExternalMetric
	policies []*v1alpha1.ExternalMetricsPolicy
}

// complete sorts the objects and fills in defaults, as kube-apiserver does in the cluster.
func (d *declarations) complete() {
	sortByName(d.custom)
	sortByName(d.external)
	sortByName(d.policies)
	for _, m := range d.custom {
		v1alpha1.SetCustomMetricDefaults(m)
	}
	for _, m := range d.external {
		v1alpha1.SetExternalMetricDefaults(m)
	}
}

// decodeManifest reads a MetricsBackend in YAML or JSON and, as further documents, the
// CustomMetrics, ExternalMetrics and ExternalMetricsPolicies. Unknown and repeated fields are
// errors, so that a typo is not ignored.
func decodeManifest(content []byte) (*manifest, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register %s: %w", v1alpha1.GroupVersion, err)
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	m := &manifest{}
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("split YAML documents: %w", err)
		}
		if isBlank(document) {
			continue
		}
		if err := m.decode(decoder, document); err != nil {
			return nil, err
		}
	}
	if m.backend == nil {
		return nil, errors.New("the file is empty: it must hold the manifest of a MetricsBackend")
	}
	m.complete()
	return m, nil
}

// kinds lists the kinds that a file may contain.
const kinds = "MetricsBackend (or CustomMetric, ExternalMetric, ExternalMetricsPolicy beside it)"

// decode adds the object in a document.
func (m *manifest) decode(decoder runtime.Decoder, document []byte) error {
	obj, kind, err := decoder.Decode(document, nil, nil)
	switch {
	case runtime.IsMissingKind(err), runtime.IsMissingVersion(err):
		return fmt.Errorf("apiVersion must be %s and kind %s: %w", v1alpha1.GroupVersion, kinds, err)
	case runtime.IsNotRegisteredError(err):
		return fmt.Errorf("apiVersion must be %s and kind %s, but they are %s and %s", v1alpha1.GroupVersion, kinds, kind.GroupVersion(), kind.Kind)
	case err != nil:
		return err
	}
	switch obj := obj.(type) {
	case *v1alpha1.MetricsBackend:
		if m.backend != nil {
			return errors.New("the file must hold one MetricsBackend, but holds several")
		}
		m.backend = obj
		return nil
	case *v1alpha1.CustomMetric:
		m.custom = append(m.custom, obj)
		return validateNamespaced(obj, kind.Kind)
	case *v1alpha1.ExternalMetric:
		m.external = append(m.external, obj)
		return validateNamespaced(obj, kind.Kind)
	case *v1alpha1.ExternalMetricsPolicy:
		m.policies = append(m.policies, obj)
		return validateName(obj, kind.Kind)
	}
	return fmt.Errorf("kind must be %s, but is %s", kinds, kind.Kind)
}

// validateNamespaced returns an error for an object without a namespace or a name, which
// kube-apiserver would reject, too.
func validateNamespaced(o metaObject, kind string) error {
	if o.GetNamespace() == "" {
		return fmt.Errorf("%s %q has no metadata.namespace", kind, o.GetName())
	}
	return validateName(o, kind)
}

func validateName(o metaObject, kind string) error {
	if o.GetName() == "" {
		return fmt.Errorf("a %s has no metadata.name", kind)
	}
	return nil
}

// isBlank reports whether a document contains only comments and white space.
func isBlank(document []byte) bool {
	for line := range bytes.Lines(document) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}
