// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// largestIndex bounds what is read of an archive's list of images.
const largestIndex = 1 << 20

// Names lists the images in an archive: a docker archive (manifest.json) or an OCI layout (index.json).
func Names(archive string) ([]string, error) {
	file, err := os.Open(archive)
	if err != nil {
		return nil, explainRelative(archive, err)
	}
	defer func() { _ = file.Close() }()
	names, err := readNames(file)
	if err != nil {
		return nil, fmt.Errorf("reading the image archive %s: %w", archive, err)
	}
	return names, nil
}

// explainRelative: with `go -C` the working directory is not where the user is.
func explainRelative(path string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) || filepath.IsAbs(path) {
		return err
	}
	here, _ := os.Getwd()
	return fmt.Errorf("%w in %s (`go -C` changes the working directory: give an absolute path)", err, here)
}

func readNames(file io.Reader) ([]string, error) {
	var names []string
	found := false
	for archive := tar.NewReader(file); ; {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("not a tar archive: %w", err)
		}
		name := path.Clean(entry.Name) // tar writes ./index.json of a folder
		if name != "manifest.json" && name != "index.json" {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(archive, largestIndex))
		if err != nil {
			return nil, err
		}
		read := dockerNames
		if name == "index.json" {
			read = ociNames
		}
		more, err := read(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found = true
		names = append(names, more...)
	}
	if !found {
		return nil, errors.New("it holds neither manifest.json (docker save) nor index.json (OCI layout)")
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func dockerNames(content []byte) ([]string, error) {
	var manifest []struct{ RepoTags []string }
	if err := json.Unmarshal(content, &manifest); err != nil {
		return nil, err
	}
	var names []string
	for _, image := range manifest {
		names = append(names, image.RepoTags...)
	}
	return names, nil
}

func ociNames(content []byte) ([]string, error) {
	var index struct {
		Manifests []struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(content, &index); err != nil {
		return nil, err
	}
	var names []string
	for _, manifest := range index.Manifests {
		for _, key := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
			if name := manifest.Annotations[key]; name != "" {
				names = append(names, name)
				break
			}
		}
	}
	return names, nil
}
