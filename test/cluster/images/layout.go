// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Annotations by which tools find an image in a layout. containerd takes the name of its own annotation as it is, and so
// needs the registry in it.
const (
	refName        = "org.opencontainers.image.ref.name"
	containerdName = "io.containerd.image.name"
)

// WriteLayout makes an image of each program, which are builds of the same one for several architectures, and writes them as
// one multi-architecture image into a folder, as an OCI layout. The same programs give the same bytes.
func WriteLayout(spec Spec, programs []Binary, folder string) error {
	tag, err := name.NewTag(spec.Tag)
	if err != nil {
		return fmt.Errorf("image name: %w", err)
	}
	index, made := mutate.IndexMediaType(empty.Index, types.OCIImageIndex), map[string]bool{}
	for _, program := range programs {
		one := spec
		one.Binaries = []Binary{program}
		image, err := build(one, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return fmt.Errorf("building the image %s: %w", spec.Tag, err)
		}
		image = mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON)
		config, err := image.ConfigFile()
		if err != nil {
			return err
		}
		if made[config.Architecture] {
			return fmt.Errorf("building the image %s: two programs are for %s", spec.Tag, config.Architecture)
		}
		made[config.Architecture] = true
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: config.OS, Architecture: config.Architecture},
		}})
	}
	index, ok := mutate.Annotations(index, spec.Labels).(v1.ImageIndex)
	if !ok {
		return errors.New("an index with annotations is none")
	}
	if _, err := os.Stat(folder); err == nil {
		return fmt.Errorf("writing the image %s: %s exists: remove it", spec.Tag, folder)
	}
	written, err := layout.Write(folder, empty.Index)
	if err == nil {
		full := strings.Replace(tag.Name(), name.DefaultRegistry, "docker.io", 1)
		err = written.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: spec.Tag, containerdName: full}))
	}
	if err != nil {
		return fmt.Errorf("writing the image %s to %s: %w", spec.Tag, folder, err)
	}
	return nil
}

// Push pushes the image in a layout to the registry in its name, with the credentials of docker login, and returns its digest.
func Push(ctx context.Context, folder string) (string, error) {
	root, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return "", fmt.Errorf("reading the layout %s: %w", folder, err)
	}
	manifest, err := root.IndexManifest()
	if err != nil {
		return "", fmt.Errorf("reading the layout %s: %w", folder, err)
	}
	if len(manifest.Manifests) != 1 {
		return "", fmt.Errorf("the layout %s holds %d images, not one", folder, len(manifest.Manifests))
	}
	found := manifest.Manifests[0]
	tag, err := name.NewTag(found.Annotations[refName])
	if err != nil {
		return "", fmt.Errorf("image name: %w", err)
	}
	index, err := root.ImageIndex(found.Digest)
	if err != nil {
		return "", fmt.Errorf("reading the layout %s: %w", folder, err)
	}
	there, err := remote.Head(tag, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err == nil && there.Digest != found.Digest {
		return "", fmt.Errorf("%s is there already, as %s: a release does not change", tag, there.Digest)
	}
	if err := remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return "", fmt.Errorf("pushing %s: %w", tag, err)
	}
	return tag.Context().Name() + "@" + found.Digest.String(), nil
}
