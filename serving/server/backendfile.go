// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

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
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// filePeriod is how often --backend-file is read. Reading works on every file
// system and through the symbolic links of a mounted ConfigMap, which file
// notifications do not.
const filePeriod = 2 * time.Second

// backendFile follows a manifest on disk.
type backendFile struct {
	path  string
	clock clock.WithTicker
	apply func(context.Context, *v1alpha1.MetricsBackend)
	// declare takes what the file declares beside the MetricsBackend.
	declare func(context.Context, *declarations)
	// content and failure are what the last read found.
	content []byte
	failure string
}

// load reads the file for the first time and returns its settings, and what else it
// declares. At the start, a manifest that cannot be used is an error: whoever wrote the
// command line is there to read it.
func (f *backendFile) load() (settings, *declarations, error) {
	content, err := os.ReadFile(f.path)
	if err != nil {
		return settings{}, nil, fmt.Errorf("read --backend-file: %w", err)
	}
	m, err := decodeManifest(content)
	if err != nil {
		return settings{}, nil, fmt.Errorf("read --backend-file %s: %w", f.path, err)
	}
	s, err := settingsFrom(&m.backend.Spec)
	if err != nil {
		return settings{}, nil, fmt.Errorf("--backend-file %s: %w", f.path, err)
	}
	f.content = content
	return s, &m.declarations, nil
}

// run applies each change of the file until the context ends.
func (f *backendFile) run(ctx context.Context) {
	ticker := f.clock.NewTicker(filePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			f.poll(ctx)
		}
	}
}

// poll reads the file once. What cannot be used is logged once, and changes nothing.
func (f *backendFile) poll(ctx context.Context) {
	m, err := f.reread()
	switch {
	case err == nil && m == nil:
		return
	case err == nil:
		f.failure = ""
		f.apply(ctx, m.backend)
		f.declare(ctx, &m.declarations)
	case err.Error() != f.failure:
		f.failure = err.Error()
		klog.FromContext(ctx).Error(err, "Cannot read the MetricsBackend; the settings in force stay", "path", f.path)
	}
}

// reread returns nil when the file is as it was.
func (f *backendFile) reread() (*manifest, error) {
	content, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	if f.failure == "" && bytes.Equal(content, f.content) {
		return nil, nil
	}
	m, err := decodeManifest(content)
	if err != nil {
		return nil, err
	}
	f.content = content
	return m, nil
}

// manifest is what a file holds.
type manifest struct {
	backend *v1alpha1.MetricsBackend
	declarations
}

// decodeManifest reads a MetricsBackend in YAML or JSON and, as further documents, the
// CustomMetrics, ExternalMetrics and ExternalMetricsPolicies that go with it. Unknown and
// repeated fields are errors, so that a slip does not pass for a setting.
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
	return m, nil
}

// kinds are those that a file may hold.
const kinds = "MetricsBackend (or CustomMetric, ExternalMetric, ExternalMetricsPolicy beside it)"

// decode adds a document.
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
		return located(obj, kind.Kind)
	case *v1alpha1.ExternalMetric:
		m.external = append(m.external, obj)
		return located(obj, kind.Kind)
	case *v1alpha1.ExternalMetricsPolicy:
		m.policies = append(m.policies, obj)
		return named(obj, kind.Kind)
	}
	return fmt.Errorf("kind must be %s, but is %s", kinds, kind.Kind)
}

// located says what kube-apiserver would of an object without a name or a namespace.
func located(o metaObject, kind string) error {
	if o.GetNamespace() == "" {
		return fmt.Errorf("%s %q has no metadata.namespace", kind, o.GetName())
	}
	return named(o, kind)
}

func named(o metaObject, kind string) error {
	if o.GetName() == "" {
		return fmt.Errorf("a %s has no metadata.name", kind)
	}
	return nil
}

// isBlank says that a document holds nothing but comments and white space.
func isBlank(document []byte) bool {
	for line := range bytes.Lines(document) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}
