// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle brings the cluster up and down, tells how it is, and breaks it for tests.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/components"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/packages"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/progress"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// Cluster is the one cluster that a state directory holds.
type Cluster struct {
	Dir    state.Dir
	Report *progress.Reporter
}

// ErrNoCluster says that the state directory holds no cluster.
var ErrNoCluster = errors.New("there is no cluster; run `go -C test/cluster run . up` first")

// privileged returns an error where this machine or this user cannot run the cluster.
func privileged(command string) error {
	if runtime.GOOS != "linux" {
		return fmt.Errorf("%s: the cluster runs on Linux only, and this is %s; use a kind or a real cluster through KUBECONFIG instead", command, runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s: root is needed (for containerd, the kubelet, mounts and network interfaces); run it with sudo, keeping PATH so that go is found", command)
	}
	return nil
}

// components returns the definitions of a cluster that exists.
func (c Cluster) components() ([]components.Component, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return components.All(config)
}

func (c Cluster) config() (components.Config, error) {
	settings, err := c.Dir.Settings()
	if errors.Is(err, fs.ErrNotExist) {
		return components.Config{}, fmt.Errorf("%s: %w", c.Dir, ErrNoCluster)
	}
	if err != nil {
		return components.Config{}, err
	}
	return c.configOf(settings), nil
}

func (c Cluster) configOf(settings state.Settings) components.Config {
	return components.Config{
		Dir:                c.Dir,
		Binaries:           settings.Binaries,
		Kubernetes:         settings.Kubernetes,
		CNIPlugins:         packages.CNIFolder(),
		KubeletCertificate: settings.KubeletCertificate,
		IPFamily:           settings.IPFamily,
	}
}

func (c Cluster) lock(ctx context.Context) (func(), error) {
	return c.Dir.Lock(ctx, func() { c.Report.Say("lock", "another run works on this cluster; waiting") })
}
