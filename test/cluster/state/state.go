// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package state holds what the cluster program keeps on disk between its runs: one directory with a
// marker file, below which everything of the cluster lives.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// DefaultDir is the state directory where neither --dir nor CLUSTER_DIR names another.
const DefaultDir = "/var/lib/metrics-backend-cluster"

// markerFile tells a directory of ours from any other. Nothing is ever deleted in a directory without it.
const markerFile = "cluster.json"

// longestSocket is the longest path of a unix socket below the directory; the kernel allows 107 bytes.
const longestSocket = "kubelet/pod-resources/kubelet.sock"

var plain = regexp.MustCompile(`^[A-Za-z0-9._/-]+$`)

// KubeletCertificate is the signer of the certificate of the kubelet's port 10250.
type KubeletCertificate string

const (
	// SignedByCluster is a certificate of the cluster's CA with the node's IP: a client can verify it.
	SignedByCluster KubeletCertificate = "signed"
	// SelfSigned is the kubelet's own certificate, as kubeadm and kind leave it.
	SelfSigned KubeletCertificate = "self-signed"
)

// IPFamily is that of all addresses of a cluster.
type IPFamily string

// The families of clusters.
const (
	IPv4 IPFamily = "IPv4"
	IPv6 IPFamily = "IPv6"
)

// Settings are the decisions of the "up" that made the cluster, and what "down" needs to undo it.
type Settings struct {
	Created            time.Time          `json:"created"`
	Binaries           string             `json:"binaries,omitempty"`
	Kubernetes         string             `json:"kubernetes,omitempty"`
	IPFamily           IPFamily           `json:"ipFamily,omitempty"`
	KubeletCertificate KubeletCertificate `json:"kubeletCertificate"`
	// Sysctls holds the values that the kernel had before, by name (slashes).
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// Tables are the nftables tables that existed before.
	Tables []string `json:"tables"`
	// Images holds the SHA-256 of each imported archive by image name, so that a second up imports nothing.
	Images map[string]string `json:"images,omitempty"`
}

// Dir is the state directory, an absolute path.
type Dir string

// At makes path a state directory's name. It must be absolute, deep enough to be nobody's root, and
// short enough for the unix sockets below it.
func At(path string) (Dir, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("state directory %q: must be an absolute path", path)
	}
	path = filepath.Clean(path)
	if filepath.Dir(path) == "/" {
		return "", fmt.Errorf("state directory %s: must not be directly below /; take for example %s", path, DefaultDir)
	}
	// The path stands in configuration files of three formats, unquoted.
	if !plain.MatchString(path) {
		return "", fmt.Errorf("state directory %q: may hold only letters, digits and the characters . _ - /", path)
	}
	if socket := filepath.Join(path, longestSocket); len(socket) > 107 {
		return "", fmt.Errorf("state directory %s: too long by %d bytes for the unix sockets below it", path, len(socket)-107)
	}
	return Dir(path), nil
}

// Path joins elements below the directory.
func (d Dir) Path(elements ...string) string {
	return filepath.Join(append([]string{string(d)}, elements...)...)
}

// Kubeconfig is the administrator's kubeconfig.
func (d Dir) Kubeconfig() string { return d.Path("admin.kubeconfig") }

// Log is the log file of a component.
func (d Dir) Log(component string) string { return d.Path("logs", component+".log") }

// Settings reads the marker. It returns an error that is fs.ErrNotExist where there is no cluster.
func (d Dir) Settings() (Settings, error) {
	var s Settings
	content, err := os.ReadFile(d.Path(markerFile))
	if err != nil {
		return s, fmt.Errorf("reading the cluster's settings: %w", err)
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return s, fmt.Errorf("reading the cluster's settings %s: %w; run down, then up", d.Path(markerFile), err)
	}
	return s, nil
}

// Save writes the marker.
func (d Dir) Save(s Settings) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the cluster's settings: %w", err)
	}
	return WriteFile(d.Path(markerFile), append(content, '\n'), 0o644)
}

// Create makes the directory. It refuses one that holds something that is not ours.
func (d Dir) Create() error {
	entries, err := os.ReadDir(string(d))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("opening the state directory: %w", err)
	case !owned(entries):
		return fmt.Errorf("state directory %s holds files that are not of a cluster; give another with --dir", d)
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return fmt.Errorf("creating the state directory: %w", err)
	}
	return nil
}

// Owned says whether the directory exists and is ours.
func (d Dir) Owned() bool {
	entries, err := os.ReadDir(string(d))
	return err == nil && len(entries) > 0 && owned(entries)
}

// owned: the lock is written before the marker, so a run that was killed in between left only that.
func owned(entries []fs.DirEntry) bool {
	others := 0
	for _, e := range entries {
		switch e.Name() {
		case markerFile:
			return true
		case lockFile:
		default:
			others++
		}
	}
	return others == 0
}

// Remove deletes the directory and all below it, if it is ours. The caller has unmounted what was mounted there.
// The marker goes last: a removal that is interrupted can be repeated.
func (d Dir) Remove() error {
	if !d.Owned() {
		return nil
	}
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("removing the state directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() == markerFile {
			continue
		}
		if err := os.RemoveAll(d.Path(e.Name())); err != nil {
			return fmt.Errorf("removing the state directory: %w", err)
		}
	}
	if err := os.RemoveAll(string(d)); err != nil {
		return fmt.Errorf("removing the state directory: %w", err)
	}
	return nil
}

// WriteFile writes a file so that a reader, or a run after a crash, sees the old or the new content, never half.
// It makes the parent directories.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(mode), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, errors.Join(err, os.Remove(file.Name())))
	}
	return nil
}
