// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// program builds a real static binary: this module's pause.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pause")
	cmd := exec.Command("go", "build", "-o", path, "./pause")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building pause: %v\n%s", err, out)
	}
	return path
}

func TestWriteAndReadBack(t *testing.T) {
	t.Parallel()
	source := program(t)
	content, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "image.tar")
	err = Write(Spec{
		Tag:       "metrics-backend/serving:dev",
		Binaries:  []Binary{{source, "/usr/bin/serving"}, {source, "/usr/bin/second"}},
		User:      "65532:65532",
		Arguments: []string{"--v=2"},
	}, out)
	if err != nil {
		t.Fatal(err)
	}
	names, err := Names(out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"metrics-backend/serving:dev"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	tag, err := name.NewTag("metrics-backend/serving:dev")
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(out, &tag)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture == "" || !config.Created.IsZero() {
		t.Errorf("os %q, architecture %q, created %v", config.OS, config.Architecture, config.Created)
	}
	got := []string{config.Config.User, strings.Join(config.Config.Entrypoint, " "), strings.Join(config.Config.Cmd, " ")}
	if diff := cmp.Diff([]string{"65532:65532", "/usr/bin/serving", "--v=2"}, got); diff != "" {
		t.Errorf("user, entrypoint, arguments (-want +got):\n%s", diff)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v, want 1", len(layers), err)
	}
	files, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.Close() }()
	var entries []string
	for archive := tar.NewReader(files); ; {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry.Name)
		if entry.Mode != 0o755 || entry.Uid != 0 || !entry.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s: mode %o, owner %d, time %v", entry.Name, entry.Mode, entry.Uid, entry.ModTime)
		}
		if entry.Typeflag == tar.TypeReg {
			if stored, err := io.ReadAll(archive); err != nil || !bytes.Equal(stored, content) {
				t.Errorf("%s is not the program: %v", entry.Name, err)
			}
		}
	}
	if diff := cmp.Diff([]string{"usr/", "usr/bin/", "usr/bin/serving", "usr/bin/second"}, entries); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
}

func TestTheSameProgramGivesTheSameBytes(t *testing.T) {
	t.Parallel()
	source, folder := program(t), t.TempDir()
	var archives [2][]byte
	for i := range archives {
		out := filepath.Join(folder, "image.tar")
		// A program that was built again has another time.
		if err := os.Chtimes(source, time.Now(), time.Now().Add(time.Duration(i)*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if err := Write(Spec{Tag: "a:b", Binaries: []Binary{{source, "/a"}}, User: "1"}, out); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Fatal("two archives of one program differ")
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	static := program(t)
	dynamic, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	good := Spec{Tag: "a:b", Binaries: []Binary{{static, "/a"}}, User: "65532"}
	for name, test := range map[string]struct {
		change  func(*Spec)
		wantErr string
	}{
		"no tag":            {func(s *Spec) { s.Tag = "localhost:5000/name" }, "has no tag"},
		"a bad name":        {func(s *Spec) { s.Tag = "UPPER:x" }, "image name"},
		"no binary":         {func(s *Spec) { s.Binaries = nil }, "no binary"},
		"a named user":      {func(s *Spec) { s.User = "nobody" }, "must be a number"},
		"no user":           {func(s *Spec) { s.User = "" }, "must be a number"},
		"half a group":      {func(s *Spec) { s.User = "1:" }, "must be a number"},
		"a dynamic program": {func(s *Spec) { s.Binaries = []Binary{{dynamic, "/sh"}} }, "CGO_ENABLED=0"},
		"a program without its libraries": {func(s *Spec) {
			s.Binaries = []Binary{{dynamic, "/sh"}, {static, interpreter(t, dynamic)}}
		}, "needs the library"},
		"a script":          {func(s *Spec) { s.Binaries = []Binary{{text, "/script"}} }, "reading the program"},
		"a missing program": {func(s *Spec) { s.Binaries = []Binary{{static + "x", "/x"}} }, "no such file"},
		"one place twice":   {func(s *Spec) { s.Binaries = append(s.Binaries, s.Binaries[0]) }, "two files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			spec := good
			test.change(&spec)
			err := Write(spec, filepath.Join(folder, "image.tar"))
			if err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Fatalf("got %v, want an error with %q", err, test.wantErr)
			}
			if entries, err := os.ReadDir(folder); err != nil || len(entries) != 0 {
				t.Fatalf("left %v, %v", entries, err)
			}
		})
	}
}

// interpreter is the loader that a program names.
func interpreter(t *testing.T, file string) string {
	t.Helper()
	program, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = program.Close() }()
	section := program.Section(".interp")
	if section == nil {
		t.Fatalf("%s names no loader", file)
	}
	content, err := section.Data()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimRight(string(content), "\x00")
}

// A dynamic program runs with its loader and libraries beside it, at the places where they are on this machine.
func TestDynamicProgram(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	listed, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Fatalf("ldd %s: %v", program, err)
	}
	spec := Spec{Tag: "a:b", Binaries: []Binary{{program, "/bin/sh"}}, User: "65532"}
	for word := range strings.FieldsSeq(string(listed)) {
		if strings.HasPrefix(word, "/") {
			spec.Binaries = append(spec.Binaries, Binary{word, word})
		}
	}
	if err := Write(spec, filepath.Join(t.TempDir(), "image.tar")); err != nil {
		t.Fatal(err)
	}
}

func TestParseBinary(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text    string
		want    Binary
		wantErr bool
	}{
		"path alone":       {text: "bin/serving", want: Binary{"bin/serving", "/serving"}},
		"with a target":    {text: "bin/serving=/usr/bin/s", want: Binary{"bin/serving", "/usr/bin/s"}},
		"empty":            {text: "", wantErr: true},
		"no source":        {text: "=/a", wantErr: true},
		"relative target":  {text: "a=b", wantErr: true},
		"target upwards":   {text: "a=/../b", wantErr: true},
		"target is a root": {text: "a=/", wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseBinary(test.text)
			if (err != nil) != test.wantErr || got != test.want {
				t.Fatalf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
}
