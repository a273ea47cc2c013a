// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package binaries builds Kubernetes and etcd from the tool directives of this module's go.mod, and other versions of
// Kubernetes from a module made for them, into folders of the user's cache that all clones with the same go.mod share.
package binaries

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// KubernetesVersion is the version of go.mod.
const KubernetesVersion = "v1.37.1"

// modulePath is the path of this module, whose go.mod the go command must use.
const modulePath = "github.com/metricsbackend/metrics-backend-operator/test/cluster"

// tool is one binary.
type tool struct {
	name string
	// pkg is its main package, one of go.mod's tools.
	pkg string
}

// isEtcd reports whether it is etcd, the only one that is not of Kubernetes.
func (t tool) isEtcd() bool { return t.name == "etcd" }

// output returns the name that the go command gives the binary.
func (t tool) output() string {
	if t.isEtcd() {
		return "server" // of the path go.etcd.io/etcd/server/v3
	}
	return t.name
}

var tools = []tool{
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"etcd", "go.etcd.io/etcd/server/v3"},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
	{"kubelet", "k8s.io/kubernetes/cmd/kubelet"},
	{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"},
}

// Names lists the binaries.
func Names() []string {
	names := make([]string, 0, len(tools))
	for _, t := range tools {
		names = append(names, t.name)
	}
	return names
}

// selectTools returns the tools with these names, or all of them.
func selectTools(names []string) ([]tool, error) {
	if len(names) == 0 {
		return tools, nil
	}
	var selected []tool
	for _, name := range names {
		i := slices.IndexFunc(tools, func(t tool) bool { return t.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no binary is called %q; there are %s", name, strings.Join(Names(), ", "))
		}
		selected = append(selected, tools[i])
	}
	return selected, nil
}

// linkerFlags sets the version; without it every component would report v0.0.0-master.
func linkerFlags(kubernetes string) string {
	parts := strings.SplitN(strings.TrimPrefix(kubernetes, "v"), ".", 3)
	flags := []string{"-s", "-w"}
	for _, set := range [][2]string{
		{"gitVersion", kubernetes}, {"gitMajor", parts[0]}, {"gitMinor", parts[1]},
	} {
		flags = append(flags, "-X", "k8s.io/component-base/version."+set[0]+"="+set[1])
	}
	return strings.Join(flags, " ")
}

// folder returns the folder for the binaries of this go.mod, go.sum, compiler and version of Kubernetes.
func folder(module, kubernetes string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's cache directory: %w; set XDG_CACHE_HOME", err)
	}
	hash := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("reading the module's versions: %w", err)
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(content), content)
	}
	fmt.Fprintln(hash, linkerFlags(kubernetes), runtime.Version())
	key := hex.EncodeToString(hash.Sum(nil))[:12]
	return filepath.Join(cache, "metrics-backend-operator",
		fmt.Sprintf("kubernetes-%s-%s-%s", kubernetes, runtime.GOARCH, key)), nil
}
