// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Entry is a ready pod, and the ServiceAccount whose token requests to it carry.
// Pod.Token is empty.
type Entry struct {
	Name    string
	Pod     Pod
	Account client.ObjectKey
}

// Directory holds the ready serving pods of each MetricsBackend. The controller that
// deploys them knows their certificates and fills it; other controllers read it.
type Directory struct {
	mu   sync.RWMutex
	pods map[string][]Entry
}

// NewDirectory returns an empty Directory.
func NewDirectory() *Directory { return &Directory{pods: map[string][]Entry{}} }

// Set replaces the ready pods of a backend.
func (d *Directory) Set(backend string, pods []Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pods[backend] = slices.Clone(pods)
}

// Forget removes a backend that is deleted, or not served by pods of ours.
func (d *Directory) Forget(backend string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pods, backend)
}

// Pods returns the ready pods of a backend, and whether they are known; they are not
// just after a start.
func (d *Directory) Pods(backend string) ([]Entry, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	pods, known := d.pods[backend]
	return slices.Clone(pods), known
}
