// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// programFor builds pause for an architecture.
func programFor(t *testing.T, architecture string) Binary {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pause-"+architecture)
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "./pause")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+architecture)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building pause: %v\n%s", err, out)
	}
	return Binary{path, "/pause"}
}

// What is pushed is what registries and nodes of both architectures need, and the same from the same programs.
func TestLayoutIsPushed(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New())
	defer server.Close()
	tag := strings.TrimPrefix(server.URL, "http://") + "/metrics-backend/pause:v1"
	spec := Spec{Tag: tag, User: "65532:65532", Labels: map[string]string{"org.opencontainers.image.version": "v1"}}
	programs := []Binary{programFor(t, "amd64"), programFor(t, "arm64")}
	var digests [2]string
	for i := range digests {
		folder := filepath.Join(t.TempDir(), "layout")
		if err := WriteLayout(spec, programs, folder); err != nil {
			t.Fatal(err)
		}
		var err error
		if digests[i], err = Push(t.Context(), folder); err != nil {
			t.Fatal(err)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("pushed %s, then %s", digests[0], digests[1])
	}
	reference, err := name.NewDigest(digests[0])
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(reference)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		layers, err := image.Layers()
		if err != nil {
			t.Fatal(err)
		}
		kind, err := layers[0].MediaType()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.Platform.Architecture+" "+config.Architecture+" "+config.Config.Labels["org.opencontainers.image.version"]+" "+string(m.MediaType)+" "+string(kind))
	}
	const rest = " v1 application/vnd.oci.image.manifest.v1+json application/vnd.oci.image.layer.v1.tar+gzip"
	if diff := cmp.Diff([]string{"amd64 amd64" + rest, "arm64 arm64" + rest}, got); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	if version := manifest.Annotations["org.opencontainers.image.version"]; version != "v1" {
		t.Errorf("the index is of version %q", version)
	}
}

func TestPushRefuses(t *testing.T) {
	t.Parallel()
	if _, err := Push(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "reading the layout") {
		t.Errorf("an empty folder: %v", err)
	}
	folder := filepath.Join(t.TempDir(), "layout")
	if err := WriteLayout(Spec{Tag: "127.0.0.1:1/a:b", User: "1"}, []Binary{programFor(t, "amd64")}, folder); err != nil {
		t.Fatal(err)
	}
	if _, err := Push(t.Context(), folder); err == nil || !strings.Contains(err.Error(), "pushing 127.0.0.1:1/a:b") {
		t.Errorf("no registry: %v", err)
	}
}

// containerd takes the name of a layout's image as it is, so it has the registry that is left out in manifests.
func TestLayoutNamesRegistry(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "layout")
	if err := WriteLayout(Spec{Tag: "metrics-backend/pause:v1", User: "65532:65532"}, []Binary{programFor(t, "amd64")}, folder); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(folder, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	names, err := ociNames(content)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"docker.io/metrics-backend/pause:v1"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
