// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Loader is the command that brings an archive into a cluster.
type Loader struct {
	// Cluster is its name for people.
	Cluster string
	// Command takes the archive's path as its last argument, or where %s stands.
	Command []string
}

// Load runs the command for one archive.
func (l Loader) Load(ctx context.Context, archive string) error {
	arguments := make([]string, 0, len(l.Command)+1)
	placed := false
	for _, argument := range l.Command {
		if argument == "%s" {
			argument, placed = archive, true
		}
		arguments = append(arguments, argument)
	}
	if !placed {
		arguments = append(arguments, archive)
	}
	if _, err := exec.LookPath(arguments[0]); err != nil {
		return fmt.Errorf("loading %s into %s: the program %s is needed for it: %w", archive, l.Cluster, arguments[0], err)
	}
	out, err := exec.CommandContext(ctx, arguments[0], arguments[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("loading %s into %s: %s: %w: %s", archive, l.Cluster, strings.Join(arguments, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// kubeconfigFile is what we read of a kubeconfig.
type kubeconfigFile struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string
		Context struct{ Cluster string }
	}
	Clusters []struct {
		Name    string
		Cluster struct {
			Server     string
			Extensions []struct {
				Extension struct{ Provider string }
			}
		}
	}
}

// target is the current context of a KUBECONFIG.
type target struct {
	context, cluster, server string
	providers                []string
}

// ErrNoLoader says that a cluster takes no archives.
var ErrNoLoader = errors.New("this cluster takes no image archives")

// ForKubeconfig returns the loader for the current context of KUBECONFIG (a list of files). ours is true
// where it is the cluster of this program, whose server is given.
func ForKubeconfig(list, server string) (loader Loader, ours bool, err error) {
	current, err := readTarget(list)
	if err != nil {
		return Loader{}, false, err
	}
	if current.server == server {
		return Loader{}, true, nil
	}
	loader, err = loaderFor(current)
	return loader, false, err
}

func loaderFor(t target) (Loader, error) {
	if cluster, found := strings.CutPrefix(t.context, "kind-"); found {
		return Loader{"the kind cluster " + cluster, []string{"kind", "load", "image-archive", "--name", cluster}}, nil
	}
	for _, provider := range t.providers {
		if provider == "minikube.sigs.k8s.io" {
			return Loader{"the minikube profile " + t.cluster, []string{"minikube", "--profile", t.cluster, "image", "load"}}, nil
		}
	}
	return Loader{}, fmt.Errorf("%w: the context %q of KUBECONFIG (server %s) is neither kind's nor minikube's nor the test cluster's; push the images to a registry that it can pull from, and set them in the manifests (unset KUBECONFIG to load into the test cluster)", ErrNoLoader, t.context, t.server)
}

// readTarget reads as kubectl merges: of several files, the first that says something counts.
func readTarget(list string) (target, error) {
	var t target
	var files []kubeconfigFile
	for _, file := range filepath.SplitList(list) {
		content, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return t, fmt.Errorf("reading KUBECONFIG: %w", err)
		}
		var parsed kubeconfigFile
		if err := yaml.Unmarshal(content, &parsed); err != nil {
			return t, fmt.Errorf("reading KUBECONFIG: %s: %w", file, err)
		}
		files = append(files, parsed)
		if t.context == "" {
			t.context = parsed.CurrentContext
		}
	}
	if t.context == "" {
		return t, fmt.Errorf("KUBECONFIG is %s, and no context is current there; run kubectl config use-context, or unset KUBECONFIG for the test cluster", list)
	}
	for _, file := range files {
		for _, c := range file.Contexts {
			if c.Name == t.context && t.cluster == "" {
				t.cluster = c.Context.Cluster
			}
		}
	}
	for _, file := range files {
		for _, c := range file.Clusters {
			if c.Name != t.cluster || t.server != "" {
				continue
			}
			t.server = c.Cluster.Server
			for _, e := range c.Cluster.Extensions {
				t.providers = append(t.providers, e.Extension.Provider)
			}
		}
	}
	return t, nil
}
