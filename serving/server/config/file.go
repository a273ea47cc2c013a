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
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/config/crd"
	"github.com/metricsbackend/metrics-backend-operator/internal/crdschema"
)

// filePeriod is the interval in which --backend-file is read. Unlike file notifications,
// reading works on every file system and through the symbolic links of a mounted ConfigMap.
const filePeriod = 2 * time.Second

// fileWatcher watches a manifest on disk.
type fileWatcher struct {
	path string
	// apply is called after each change of the file.
	apply func(context.Context, *manifest)
	// content and invalid are the file when it was last decoded, and its error.
	content []byte
	invalid error
	// failure is the last error that was logged.
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
	m, err := f.reread() //nolint:contextcheck // validation asks nobody
	switch {
	case err == nil:
		f.failure = ""
		if m != nil {
			f.apply(ctx, m)
		}
	case err.Error() != f.failure:
		f.failure = err.Error()
		klog.FromContext(ctx).Error(err, "Cannot read the MetricsBackend; the current settings stay", "path", f.path)
	}
}

// reread returns nil, or the same error again, if the file has not changed.
func (f *fileWatcher) reread() (*manifest, error) {
	content, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	if f.content != nil && bytes.Equal(content, f.content) {
		return nil, f.invalid
	}
	m, err := decodeManifest(content)
	f.content, f.invalid = content, err
	return m, err
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

// decodeManifest reads a MetricsBackend in YAML or JSON and, as further documents, the
// CustomMetrics, ExternalMetrics and ExternalMetricsPolicies, with the defaults of their CRDs. What kube-apiserver would
// refuse is an error, as are repeated fields.
func decodeManifest(content []byte) (*manifest, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register %s: %w", v1alpha1.GroupVersion, err)
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	m, schemas := &manifest{}, map[string]*crdschema.Schema{}
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
		if err := m.decode(decoder, schemas, document); err != nil {
			return nil, err
		}
	}
	if m.backend == nil {
		return nil, errors.New("the file is empty: it must hold the manifest of a MetricsBackend")
	}
	sortByName(m.custom)
	sortByName(m.external)
	sortByName(m.policies)
	return m, nil
}

// kinds lists the kinds that a file may contain.
const kinds = "MetricsBackend (or CustomMetric, ExternalMetric, ExternalMetricsPolicy beside it)"

// decode adds the object in a document. It compiles the schemas that are not in schemas.
func (m *manifest) decode(decoder runtime.Decoder, schemas map[string]*crdschema.Schema, document []byte) error {
	obj, kind, err := decoder.Decode(document, nil, nil)
	switch {
	case runtime.IsMissingKind(err), runtime.IsMissingVersion(err):
		return fmt.Errorf("apiVersion must be %s and kind %s: %w", v1alpha1.GroupVersion, kinds, err)
	case runtime.IsNotRegisteredError(err):
		return fmt.Errorf("apiVersion must be %s and kind %s, but they are %s and %s", v1alpha1.GroupVersion, kinds, kind.GroupVersion(), kind.Kind)
	case err != nil:
		return err
	}
	object, ok := obj.(metaObject)
	plural := plurals[kind.Kind]
	switch {
	case !ok || plural == "":
		return fmt.Errorf("kind must be %s, but is %s", kinds, kind.Kind)
	case object.GetName() == "":
		return fmt.Errorf("a %s has no metadata.name", kind.Kind)
	}
	if schemas[plural] == nil {
		if schemas[plural], err = schemaOf(plural); err != nil {
			return err
		}
	}
	if err := defaultAndValidate(obj, schemas[plural], document); err != nil {
		return fmt.Errorf("%s %s: %w", kind.Kind, object.GetName(), err)
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
	case *v1alpha1.ExternalMetric:
		m.external = append(m.external, obj)
	case *v1alpha1.ExternalMetricsPolicy:
		m.policies = append(m.policies, obj)
		return nil
	}
	if object.GetNamespace() == "" {
		return fmt.Errorf("%s %q has no metadata.namespace", kind.Kind, object.GetName())
	}
	return nil
}

// plurals are those of the kinds.
var plurals = map[string]string{
	"MetricsBackend": "metricsbackends", "CustomMetric": "custommetrics", "ExternalMetric": "externalmetrics", "ExternalMetricsPolicy": "externalmetricspolicies",
}

func schemaOf(plural string) (*crdschema.Schema, error) {
	manifest, err := crd.Manifest(plural)
	if err != nil {
		return nil, err
	}
	return crdschema.Compile(manifest)
}

// defaultAndValidate sets obj to the object in a document with the defaults of its CRD, or returns why kube-apiserver would refuse it.
func defaultAndValidate(obj runtime.Object, schema *crdschema.Schema, document []byte) error {
	text, err := yaml.ToJSON(document)
	if err != nil {
		return err
	}
	var object map[string]any
	if err := utiljson.Unmarshal(text, &object); err != nil {
		return err
	}
	errs := schema.DefaultAndValidate(context.Background(), object)
	for _, err := range errs {
		err.BadValue = field.OmitValueType{} // a URL may have a password
	}
	if len(errs) > 0 {
		return errs.ToAggregate()
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object, obj)
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
