// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package components says what the cluster consists of: each component's command line, configuration
// files, ports and health probe. It starts nothing.
package components

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/certificates"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/process"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// The components' names, as "stop", "start", "kill" and "restart" take them.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Containerd        = "containerd"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
)

// StopOrder is the order in which they are stopped: those that write to the API first, their store last.
var StopOrder = []string{Kubelet, Proxy, Scheduler, ControllerManager, APIServer, Etcd, Containerd}

// NodeName is the name of the only node.
const NodeName = "node-1"

// Config is what the components depend on.
type Config struct {
	Dir state.Dir
	// Binaries is the folder of the etcd binary and of those of the Kubernetes version.
	Binaries, Kubernetes string
	// CNIPlugins is the folder of the operating system's CNI plugins.
	CNIPlugins         string
	KubeletCertificate state.KubeletCertificate
	IPFamily           state.IPFamily
}

// Component is one long-running process.
type Component struct {
	Name string
	Path string
	Args []string
	// Files are written before the start: path to content.
	Files map[string][]byte
	// Folders are made before the start.
	Folders []string
	// Addresses are those it listens on, host:port.
	Addresses []string
	// Probe returns nil when it is healthy.
	Probe func(context.Context) error
	// Grace is how long it may take to end.
	Grace time.Duration
}

// All returns the components in the order of their start.
func All(c Config) ([]Component, error) {
	asAdmin, err := newClients(c)
	if err != nil {
		return nil, err
	}
	var all []Component
	for _, define := range []func(Config, *clients) (Component, error){
		etcd, apiServer, containerd, controllerManager, scheduler, kubelet, proxy,
	} {
		component, err := define(c, asAdmin)
		if err != nil {
			return nil, err
		}
		all = append(all, component)
	}
	return all, nil
}

// Named returns one of the components.
func Named(all []Component, name string) (Component, error) {
	for _, c := range all {
		if c.Name == name {
			return c, nil
		}
	}
	return Component{}, fmt.Errorf("no component is called %q; there are %v", name, StopOrder)
}

// Fingerprint is the hash of all that the component is started with.
func (c Component) Fingerprint() string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q", c.Path, c.Args)
	for _, path := range slices.Sorted(maps.Keys(c.Files)) {
		fmt.Fprintf(hash, "%q %q", path, c.Files[path])
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

// Write writes the component's files and makes its folders.
func (c Component) Write() error {
	for path, content := range c.Files {
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, content) {
			continue
		}
		// Kubeconfigs hold keys.
		if err := state.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("configuring %s: %w", c.Name, err)
		}
	}
	for _, folder := range c.Folders {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("configuring %s: %w", c.Name, err)
		}
	}
	return nil
}

// Command is what starts it.
func (c Component) Command() process.Command {
	return process.Command{Name: c.Name, Path: c.Path, Args: c.Args, Fingerprint: c.Fingerprint()}
}

// Free returns an error that names the addresses on which something still listens.
func (c Component) Free() error {
	var taken []string
	for _, address := range c.Addresses {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			taken = append(taken, address)
			continue
		}
		_ = listener.Close()
	}
	if len(taken) > 0 {
		return fmt.Errorf("%s needs %v, where another process listens (another cluster on this machine?)", c.Name, taken)
	}
	return nil
}

func store(dir state.Dir) certificates.Store {
	return certificates.Store{Folder: dir.Path("pki"), Now: time.Now}
}
