// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// archive is a tar of files, given as name and content in turn.
func archive(t testing.TB, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	writer := tar.NewWriter(&out)
	for i := 0; i < len(files); i += 2 {
		if err := writer.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := writer.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestReadNames(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		content []byte
		want    []string
		wantErr string
	}{
		"docker": {
			content: archive(t, "layer.tar", "x", "manifest.json", `[{"RepoTags":["b:1","a:1"]},{"RepoTags":null}]`),
			want:    []string{"a:1", "b:1"},
		},
		"OCI": {
			content: archive(t, "oci-layout", "{}", "index.json", `{"manifests":[{"annotations":{"io.containerd.image.name":"docker.io/a:1","org.opencontainers.image.ref.name":"1"}},{"annotations":{"org.opencontainers.image.ref.name":"b:1"}},{}]}`),
			want:    []string{"b:1", "docker.io/a:1"},
		},
		"both, as docker writes since 25": {
			content: archive(t, "./index.json", `{"manifests":[{"annotations":{"io.containerd.image.name":"a:1"}}]}`, "manifest.json", `[{"RepoTags":["a:1"]}]`),
			want:    []string{"a:1"},
		},
		"another tar":    {content: archive(t, "readme", "hello"), wantErr: "neither manifest.json"},
		"not a tar":      {content: bytes.Repeat([]byte("no"), 600), wantErr: "not a tar"},
		"empty":          {wantErr: "neither manifest.json"},
		"broken JSON":    {content: archive(t, "manifest.json", "[{"), wantErr: "manifest.json"},
		"cut off":        {content: archive(t, "manifest.json", `[{"RepoTags":["a:1"]}]`)[:520], wantErr: "unexpected EOF"},
		"an object":      {content: archive(t, "manifest.json", "{}"), wantErr: "manifest.json"},
		"a wrong OCI":    {content: archive(t, "index.json", "[]"), wantErr: "index.json"},
		"longest exceed": {content: archive(t, "manifest.json", "["+strings.Repeat(" ", largestIndex)+"]"), wantErr: "manifest.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := readNames(bytes.NewReader(test.content))
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("got %v, %v, want an error with %q", got, err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzReadNames(f *testing.F) {
	f.Add(archive(f, "manifest.json", `[{"RepoTags":["a:1"]}]`))
	f.Add(archive(f, "index.json", `{"manifests":[{"annotations":{"io.containerd.image.name":"a"}}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if names, err := readNames(bytes.NewReader(content)); err != nil && names != nil {
			t.Fatalf("an error and names: %v, %v", names, err)
		}
	})
}

func TestAMissingRelativeArchiveExplainsTheWorkingDirectory(t *testing.T) {
	t.Parallel()
	if _, err := Names("no/such.tar"); err == nil || !strings.Contains(err.Error(), "absolute path") {
		t.Fatalf("got %v, want advice", err)
	}
}
