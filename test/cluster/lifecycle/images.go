// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/binaries"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/components"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/images"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/process"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// own are the images that every cluster has.
var own = []struct {
	// program is a main package of this module.
	program, tag, stored string
}{
	{"pause", components.PauseImage, components.PauseImage},
	{"burn", "metrics-backend/burn:dev", "docker.io/metrics-backend/burn:dev"},
}

// ownImages builds our images and imports those that containerd does not hold as they are now.
func (c Cluster) ownImages(ctx context.Context, settings *state.Settings) (imported bool, err error) {
	module, err := binaries.Module(ctx)
	if err != nil {
		return false, err
	}
	held, err := c.held(ctx)
	if err != nil {
		return false, err
	}
	for _, image := range own {
		program := c.Dir.Path("images", image.program)
		archive := program + ".tar"
		err := binaries.Go(ctx, module, func(int) {}, c.Report.Interval(),
			"build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./images/"+image.program)
		if err != nil {
			return false, fmt.Errorf("building the program of the image %s: %w", image.tag, err)
		}
		err = images.Write(images.Spec{
			Tag:      image.tag,
			Binaries: []images.Binary{{Source: program, Target: "/" + image.program}},
			User:     "65532:65532",
		}, archive)
		if err != nil {
			return false, err
		}
		sum, err := hashFile(archive)
		if err != nil {
			return false, err
		}
		if settings.Images[image.tag] == sum && slices.Contains(held, image.stored) {
			continue
		}
		if err := c.importer().Load(ctx, archive); err != nil {
			return false, err
		}
		c.Report.Say("image", "%s imported", image.tag)
		imported = true
		if settings.Images == nil {
			settings.Images = map[string]string{}
		}
		settings.Images[image.tag] = sum
		if err := c.Dir.Save(*settings); err != nil {
			return false, err
		}
	}
	return imported, nil
}

// importer loads archives into our containerd.
func (c Cluster) importer() images.Loader {
	return images.Loader{
		Cluster: "the test cluster",
		Command: append([]string{"ctr"}, components.Images(c.Dir, "import", "%s")...),
	}
}

// held lists the names of the images that containerd has.
func (c Cluster) held(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ctr", components.Images(c.Dir, "ls", "-q")...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("listing the images of the cluster: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return strings.Fields(string(out)), nil
}

func hashFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// Load brings image archives into the cluster of KUBECONFIG (the variable's value), or into this one where
// it is empty or means this one.
func (c Cluster) Load(ctx context.Context, kubeconfig string, archives []string) error {
	loader, ours := images.Loader{}, true
	if kubeconfig != "" {
		var err error
		// Only an existing cluster has a URL of its own.
		config, _ := c.config()
		if loader, ours, err = images.ForKubeconfig(kubeconfig, config.Server()); err != nil {
			return err
		}
	}
	if ours {
		record, known, err := process.Load(c.Dir, components.Containerd)
		if err != nil {
			return err
		}
		if !known || !record.Alive() {
			return fmt.Errorf("loading images: %s does not run: %w (or set KUBECONFIG to a kind or minikube cluster)", components.Containerd, ErrNoCluster)
		}
		if err := privileged("load"); err != nil {
			return err
		}
		loader = c.importer()
	}
	for _, archive := range archives {
		names, err := images.Names(archive)
		if err != nil {
			return err
		}
		if err := loader.Load(ctx, archive); err != nil {
			return err
		}
		c.Report.Say("load", "%s into %s", strings.Join(names, ", "), loader.Cluster)
	}
	return nil
}
