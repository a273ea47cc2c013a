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
	// content and failure are what the last read found.
	content []byte
	failure string
}

// load reads the file for the first time and returns its settings. At the start,
// a manifest that cannot be used is an error: whoever wrote the command line is
// there to read it.
func (f *backendFile) load() (settings, error) {
	content, err := os.ReadFile(f.path)
	if err != nil {
		return settings{}, fmt.Errorf("read --backend-file: %w", err)
	}
	backend, err := decodeBackend(content)
	if err != nil {
		return settings{}, fmt.Errorf("read --backend-file %s: %w", f.path, err)
	}
	s, err := settingsFrom(&backend.Spec)
	if err != nil {
		return settings{}, fmt.Errorf("--backend-file %s: %w", f.path, err)
	}
	f.content = content
	return s, nil
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
	backend, err := f.reread()
	switch {
	case err == nil && backend == nil:
		return
	case err == nil:
		f.failure = ""
		f.apply(ctx, backend)
	case err.Error() != f.failure:
		f.failure = err.Error()
		klog.FromContext(ctx).Error(err, "Cannot read the MetricsBackend; the settings in force stay", "path", f.path)
	}
}

// reread returns nil when the file is as it was.
func (f *backendFile) reread() (*v1alpha1.MetricsBackend, error) {
	content, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	if f.failure == "" && bytes.Equal(content, f.content) {
		return nil, nil
	}
	backend, err := decodeBackend(content)
	if err != nil {
		return nil, err
	}
	f.content = content
	return backend, nil
}

// decodeBackend reads the one manifest of a MetricsBackend in YAML or JSON.
// Unknown and repeated fields are errors, so that a slip does not pass for a
// setting.
func decodeBackend(content []byte) (*v1alpha1.MetricsBackend, error) {
	manifest, err := onlyDocument(content)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register %s: %w", v1alpha1.GroupVersion, err)
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	obj, kind, err := decoder.Decode(manifest, nil, nil)
	switch {
	case runtime.IsMissingKind(err), runtime.IsMissingVersion(err):
		return nil, fmt.Errorf("apiVersion must be %s and kind MetricsBackend: %w", v1alpha1.GroupVersion, err)
	case runtime.IsNotRegisteredError(err):
		return nil, fmt.Errorf("apiVersion must be %s and kind MetricsBackend, but they are %s and %s", v1alpha1.GroupVersion, kind.GroupVersion(), kind.Kind)
	case err != nil:
		return nil, err
	}
	backend, ok := obj.(*v1alpha1.MetricsBackend)
	if !ok {
		return nil, fmt.Errorf("kind must be MetricsBackend, but is %s", kind.Kind)
	}
	return backend, nil
}

// onlyDocument returns the single YAML document that is not empty.
func onlyDocument(content []byte) ([]byte, error) {
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	var manifest []byte
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
		if manifest != nil {
			return nil, errors.New("the file must hold one MetricsBackend, but holds several documents")
		}
		manifest = document
	}
	if manifest == nil {
		return nil, errors.New("the file is empty: it must hold the manifest of a MetricsBackend")
	}
	return manifest, nil
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
