// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leftovers knows the few files that containerd, the CNI library and the kubelet write to places
// of their own whatever they are told: outside of the state directory.
package leftovers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/network"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// Find lists them. They are recognized by what the state directory tells, so this comes before its removal.
func Find(dir state.Dir) ([]string, error) { return find("/", dir) }

// find has the root as an argument for tests.
func find(root string, dir state.Dir) ([]string, error) {
	var found []string
	for _, look := range []func(string, state.Dir) ([]string, error){shimSockets, cniResults, logLinks, pluginSocket} {
		more, err := look(root, dir)
		if err != nil {
			return nil, fmt.Errorf("looking for files outside of the state directory: %w", err)
		}
		found = append(found, more...)
	}
	return found, nil
}

// Remove removes the files, and the folders they were in where nothing else is there.
func Remove(paths []string) error { return remove("/", paths) }

func remove(root string, paths []string) error {
	var failed error
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("removing what the cluster left: %w", err))
		}
	}
	for _, folder := range []string{
		"run/containerd/s", "run/containerd", "run/mount", "var/lib/cni/results", "var/lib/cni", "var/log/containers",
		"var/lib/kubelet/device-plugins", "var/lib/kubelet",
	} {
		// It fails where something else is in it, and then it shall stay.
		_ = os.Remove(filepath.Join(root, folder))
	}
	return failed
}

// shimSockets: containerd puts them below /run/containerd, by a hash, and notes each in the task's bundle
// (a file "address" up to 1.7, "bootstrap.json" since).
func shimSockets(root string, dir state.Dir) ([]string, error) {
	var sockets []string
	bundles, err := filepath.Glob(dir.Path("containerd", "state", "io.containerd.runtime.v2.task", "*", "*"))
	if err != nil {
		return nil, err
	}
	for _, bundle := range bundles {
		address := ""
		if content, err := os.ReadFile(filepath.Join(bundle, "address")); err == nil {
			address = strings.TrimSpace(string(content))
		} else if content, err := os.ReadFile(filepath.Join(bundle, "bootstrap.json")); err == nil {
			var bootstrap struct{ Address string }
			// A bundle that was only half written when its shim was killed names no socket.
			_ = json.Unmarshal(content, &bootstrap)
			address = bootstrap.Address
		}
		socket := strings.TrimPrefix(address, "unix://")
		if filepath.Dir(socket) == "/run/containerd/s" {
			sockets = append(sockets, filepath.Join(root, socket))
		}
	}
	return sockets, nil
}

// cniResults: the library keeps one for each sandbox and network, NETWORK-SANDBOX-INTERFACE.
func cniResults(root string, dir state.Dir) ([]string, error) {
	ours := map[string]bool{}
	sandboxes, err := filepath.Glob(dir.Path("containerd", "root", "io.containerd.grpc.v1.cri", "sandboxes", "*"))
	if err != nil {
		return nil, err
	}
	for _, sandbox := range sandboxes {
		ours[filepath.Base(sandbox)] = true
	}
	entries, err := os.ReadDir(filepath.Join(root, "var/lib/cni/results"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		if rest, found := strings.CutPrefix(entry.Name(), network.CNIName+"-"); found {
			sandbox, _, _ := strings.Cut(rest, "-")
			ours[sandbox] = true
		}
	}
	var results []string
	for _, entry := range entries {
		for part := range strings.SplitSeq(entry.Name(), "-") {
			if ours[part] {
				results = append(results, filepath.Join(root, "var/lib/cni/results", entry.Name()))
				break
			}
		}
	}
	return results, nil
}

// logLinks: the kubelet links each container's log from /var/log/containers, for old log collectors.
func logLinks(root string, dir state.Dir) ([]string, error) {
	folder := filepath.Join(root, "var/log/containers")
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var links []string
	for _, entry := range entries {
		link := filepath.Join(folder, entry.Name())
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, string(dir)+"/") {
			links = append(links, link)
		}
	}
	return links, nil
}

// pluginSocket is where the kubelet waits for device plugins, whatever its root directory is. There can be
// no other kubelet at the same time: its port is taken.
func pluginSocket(root string, dir state.Dir) ([]string, error) {
	if _, err := os.Stat(dir.Path("kubelet")); err != nil {
		return nil, nil
	}
	socket := filepath.Join(root, "var/lib/kubelet/device-plugins/kubelet.sock")
	if _, err := os.Lstat(socket); err != nil {
		return nil, nil
	}
	return []string{socket}, nil
}
