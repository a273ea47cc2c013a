// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package images makes container images without an engine and brings them into the cluster.
package images

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Binary is a program and its place in the image. One that is not static needs its loader and its libraries
// among the others.
type Binary struct {
	// Source is the file on this machine.
	Source string
	// Target is the absolute path in the image.
	Target string
}

// ParseBinary reads SOURCE or SOURCE=TARGET; without a target it is /NAME.
func ParseBinary(text string) (Binary, error) {
	source, target, found := strings.Cut(text, "=")
	if !found {
		target = "/" + filepath.Base(source)
	}
	if source == "" || !path.IsAbs(target) || path.Clean(target) != target || target == "/" {
		return Binary{}, fmt.Errorf("binary %q: must be PATH or PATH=/absolute/path/in/image", text)
	}
	return Binary{Source: source, Target: target}, nil
}

// ParseBinaries reads several as ParseBinary does.
func ParseBinaries(texts []string) ([]Binary, error) {
	var all []Binary
	for _, text := range texts {
		binary, err := ParseBinary(text)
		if err != nil {
			return nil, err
		}
		all = append(all, binary)
	}
	return all, nil
}

// Spec says what an image is.
type Spec struct {
	// Tag is the image's name, NAME:TAG.
	Tag string
	// Binaries are put into one layer on an empty base; the first is the entrypoint.
	Binaries []Binary
	// User is a numeric user, or USER:GROUP.
	User string
	// Arguments follow the entrypoint.
	Arguments []string
	// Labels are those of OCI images, such as org.opencontainers.image.version.
	Labels map[string]string
}

// Write makes the image and writes it as an archive that docker, podman and containerd load. The same
// binaries give the same bytes: no time stands in it.
func Write(spec Spec, out string) error {
	tag, err := name.NewTag(spec.Tag)
	if err == nil && !strings.Contains(path.Base(spec.Tag), ":") {
		// "latest" would make kubelets pull.
		err = fmt.Errorf("%q has no tag", spec.Tag)
	}
	if err != nil {
		return fmt.Errorf("image name: %w; give NAME:TAG", err)
	}
	// Not compressed: it is read once, on this machine.
	image, err := build(spec, tarball.WithCompression(compression.None))
	if err != nil {
		return fmt.Errorf("building the image %s: %w", spec.Tag, err)
	}
	// Renamed into place: an interrupted run leaves no half archive under the name.
	partial := out + ".partial"
	err = tarball.WriteToFile(partial, tag, image)
	if err == nil {
		err = os.Rename(partial, out)
	}
	if err != nil {
		return fmt.Errorf("writing the image %s to %s: %w", spec.Tag, out, errors.Join(err, os.RemoveAll(partial)))
	}
	return nil
}

func build(spec Spec, options ...tarball.LayerOption) (v1.Image, error) {
	if len(spec.Binaries) == 0 {
		return nil, errors.New("no binary to put into it")
	}
	if !numericUser(spec.User) {
		return nil, fmt.Errorf("user %q: must be a number, or two with a colon: an empty base has no names", spec.User)
	}
	architecture := ""
	for _, binary := range spec.Binaries {
		found, err := runnable(binary.Source, spec.Binaries)
		if err != nil {
			return nil, err
		}
		if architecture != "" && found != architecture {
			return nil, fmt.Errorf("%s is for %s and others are for %s", binary.Source, found, architecture)
		}
		architecture = found
	}
	content, err := layer(spec.Binaries)
	if err != nil {
		return nil, err
	}
	filesystem, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, options...)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, filesystem)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, configure(image, spec, architecture))
}

func configure(image v1.Image, spec Spec, architecture string) *v1.ConfigFile {
	config := &v1.ConfigFile{OS: "linux", Architecture: architecture}
	if base, err := image.ConfigFile(); err == nil {
		config.RootFS, config.History = base.RootFS, base.History
	}
	config.Config = v1.Config{
		User:       spec.User,
		Entrypoint: []string{spec.Binaries[0].Target},
		Cmd:        spec.Arguments,
		WorkingDir: "/",
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels:     spec.Labels,
	}
	return config
}

// layer is a tar of the binaries and the directories above them.
func layer(binaries []Binary) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	made := map[string]bool{}
	for _, binary := range binaries {
		for _, directory := range parents(binary.Target) {
			if made[directory] {
				continue
			}
			made[directory] = true
			if err := archive.WriteHeader(header(directory, tar.TypeDir, 0)); err != nil {
				return nil, err
			}
		}
		if made[binary.Target] {
			return nil, fmt.Errorf("two files are to be %s in the image", binary.Target)
		}
		made[binary.Target] = true
		content, err := os.ReadFile(binary.Source)
		if err != nil {
			return nil, err
		}
		if err := archive.WriteHeader(header(binary.Target, tar.TypeReg, int64(len(content)))); err != nil {
			return nil, err
		}
		if _, err := archive.Write(content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func header(target string, kind byte, size int64) *tar.Header {
	entry := &tar.Header{
		Name: strings.TrimPrefix(target, "/"), Typeflag: kind, Mode: 0o755, Size: size,
		ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
	}
	if kind == tar.TypeDir {
		entry.Name += "/"
	}
	return entry
}

// parents lists the directories above a path, the topmost first, without the root.
func parents(target string) []string {
	var above []string
	for directory := path.Dir(target); directory != "/"; directory = path.Dir(directory) {
		above = append(above, directory)
	}
	slices.Reverse(above)
	return above
}

func numericUser(user string) bool {
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	id, group, found := strings.Cut(user, ":")
	return digits(id) && (!found || digits(group))
}

var architectures = map[elf.Machine]string{
	elf.EM_X86_64:  "amd64",
	elf.EM_AARCH64: "arm64",
	elf.EM_ARM:     "arm",
	elf.EM_PPC64:   "ppc64le",
	elf.EM_S390:    "s390x",
	elf.EM_RISCV:   "riscv64",
}

// runnable returns the architecture of a program, in Go's words, if it runs in an image of all these files. On
// an empty base there is no loader, and a dynamic program would die there with "no such file or directory".
func runnable(file string, all []Binary) (string, error) {
	program, err := elf.Open(file)
	if err != nil {
		return "", fmt.Errorf("reading the program %s: %w", file, explainRelative(file, err))
	}
	defer func() { _ = program.Close() }()
	architecture, ok := architectures[program.Machine]
	if !ok {
		return "", fmt.Errorf("%s is for %v, which is no known architecture of images", file, program.Machine)
	}
	has := func(match func(Binary) bool) bool { return slices.ContainsFunc(all, match) }
	for _, segment := range program.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		content, err := io.ReadAll(segment.Open())
		if err != nil {
			return "", fmt.Errorf("reading which loader %s needs: %w", file, err)
		}
		loader := strings.TrimRight(string(content), "\x00")
		if !has(func(b Binary) bool { return b.Target == loader }) {
			return "", fmt.Errorf("%s needs the dynamic loader %s, which an empty base has not; build it with CGO_ENABLED=0, "+
				"or put the loader and the libraries that ldd lists into the image", file, loader)
		}
	}
	libraries, err := program.ImportedLibraries()
	if err != nil {
		return "", fmt.Errorf("reading which libraries %s needs: %w", file, err)
	}
	for _, library := range libraries {
		if !has(func(b Binary) bool { return path.Base(b.Target) == library }) {
			return "", fmt.Errorf("%s needs the library %s, which is not put into the image", file, library)
		}
	}
	return architecture, nil
}
