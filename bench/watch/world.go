// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

// manifest of the backend: the defaults, with limits that admit all clients.
const manifest = `apiVersion: metricsbackend.io/v1alpha1
kind: MetricsBackend
metadata: {name: cluster}
spec:
  resourceMetrics:
    scrape: {interval: %s}
  watch: {maxConnections: %d, maxConnectionsPerUser: %d}
`

// appsPerNamespace is the number of the fleet's applications in each namespace; a label
// selects one of them.
const appsPerNamespace = 20

// world is the environment of the load.
type world struct {
	plane   *cluster.ControlPlane
	fleet   *fleet.Fleet
	serving *cluster.Serving
	// answered is when each node's kubelet last answered, in ns since 1970. Its data points
	// cannot have been stored earlier.
	answered map[string]*atomic.Int64
	// pods by namespace/name.
	pods map[string]*pod

	stopFleet context.CancelFunc
}

// pod is the state of a pod over all clients.
type pod struct {
	// answered is that of its node.
	answered *atomic.Int64
	// newest is the newest sample that any client has received, in ms since 1970.
	newest atomic.Int64
}

// startWorld takes minutes, since it writes tens of thousands of pods.
func startWorld(ctx context.Context, f *flags, folder string, say progress.Say) (w *world, err error) {
	w = &world{answered: map[string]*atomic.Int64{}, pods: map[string]*pod{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	if w.plane, err = cluster.StartControlPlane(ctx, folder); err != nil {
		return w, err
	}
	say("kube-apiserver and etcd run")
	if err := w.startFleet(ctx, f); err != nil {
		return w, err
	}
	client, err := fleet.NewClient(w.plane.Config)
	if err != nil {
		return w, err
	}
	if err := fleet.NewWriter(client, w.fleet, 0).Sync(ctx); err != nil {
		return w, err
	}
	say("%d nodes and %d pods are written", f.nodes, len(w.pods))
	return w, nil
}

// startServing restarts serving, with a limit of streams per connection, and waits until
// it has run for a while.
func (w *world) startServing(ctx context.Context, f *flags, streams int, say progress.Say) error {
	if err := w.stopServing(); err != nil {
		return err
	}
	settings := fmt.Appendf(nil, manifest, f.interval, 2*max(f.watches, f.clients), 2*max(f.watches, f.clients))
	var err error
	w.serving, err = cluster.StartServing(w.plane, f.binary, settings, w.fleet.Authority().PEM,
		fmt.Sprintf("--http2-max-streams-per-connection=%d", streams))
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := w.serving.WaitReady(ready); err != nil {
		return err
	}
	say("serving is ready, process %d", w.serving.PID())
	return progress.Wait(ctx, f.warmup)
}

func (w *world) stopServing() error {
	if w.serving == nil {
		return nil
	}
	err := w.serving.Stop()
	w.serving = nil
	return err
}

func (w *world) startFleet(ctx context.Context, f *flags) error {
	var err error
	w.fleet, err = fleet.New(fleet.Options{
		Nodes: f.nodes, PodsPerNode: f.podsPerNode, Namespaces: f.namespaces(), Seed: 1,
		Answering: func(n *fleet.Node, at time.Time) { w.answered[n.Name].Store(at.UnixNano()) },
	})
	if err != nil {
		return err
	}
	for _, node := range w.fleet.Nodes() {
		at := new(atomic.Int64)
		w.answered[node.Name] = at
		for _, p := range node.Pods() {
			w.pods[p.Key().String()] = &pod{answered: at}
		}
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stopFleet = stop
	return w.fleet.Start(running)
}

// stop stops everything that was started.
func (w *world) stop() error {
	var errs []error
	errs = append(errs, w.stopServing())
	if w.stopFleet != nil {
		w.stopFleet()
		w.fleet.Wait()
	}
	if w.plane != nil {
		errs = append(errs, w.plane.Stop())
	}
	return errors.Join(errs...)
}

// target returns the path of the n-th client's pods: one application of one namespace, so
// that clients are spread over all pods.
func (w *world) target(n int) string {
	namespaces := w.fleet.Namespaces()
	namespace := namespaces[n%len(namespaces)]
	app := n / len(namespaces) % appsPerNamespace
	return fmt.Sprintf("/apis/metrics.k8s.io/v1/namespaces/%s/pods?labelSelector=app%%3Dapp-%02d", namespace, app)
}

// header returns the headers of a user. Limits are per user.
func header(f *flags, user string) []string {
	return append(cluster.Header(user, f.masters), "accept", "application/json", "user-agent", "bench-watch")
}

// checkBinary returns an error if the binary is missing.
func checkBinary(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("find the serving component's binary (make bench-watch builds it): %w", err)
	}
	return nil
}
