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
	"github.com/metricsbackend/metrics-backend-operator/bench/machine"
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
  watch: {maxWatches: %d, maxWatchesPerUser: %d}
`

// appsPerNamespace is the number of the fleet's applications in each namespace; a label
// selects one of them.
const appsPerNamespace = 20

// environment is what the load runs against.
type environment struct {
	folder string
	plane  *cluster.ControlPlane
	// apiserver is the process ID of kube-apiserver.
	apiserver int
	fleet     *fleet.Fleet
	serving   *cluster.Serving
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

// startEnvironment takes minutes, since it writes tens of thousands of pods.
func startEnvironment(ctx context.Context, f *flags, folder string, say progress.Say) (e *environment, err error) {
	e = &environment{folder: folder, answered: map[string]*atomic.Int64{}, pods: map[string]*pod{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.stop())
		}
	}()
	if e.plane, err = cluster.StartControlPlane(ctx, folder); err != nil {
		return e, err
	}
	if e.apiserver, err = machine.Child("kube-apiserver"); err != nil {
		return e, err
	}
	say("kube-apiserver and etcd run")
	if err := e.startFleet(ctx, f); err != nil {
		return e, err
	}
	client, err := fleet.NewClient(e.plane.Config)
	if err != nil {
		return e, err
	}
	if err := fleet.NewWriter(client, e.fleet, 0).Sync(ctx); err != nil {
		return e, err
	}
	say("%d nodes and %d pods are written", f.nodes, len(e.pods))
	return e, nil
}

// startServing restarts serving, with a limit of streams per connection and more of its spec
// than the manifest has, and waits until it has run for a while.
func (e *environment) startServing(ctx context.Context, f *flags, streams int, more string, say progress.Say) error {
	if err := e.stopServing(); err != nil {
		return err
	}
	// A single user, as with one connection, may have half of nine tenths.
	most := 3 * max(f.watches, f.clients)
	settings := append(fmt.Appendf(nil, manifest, f.interval, most, most), more...)
	var err error
	e.serving, err = cluster.StartServing(e.plane, f.binary, settings, e.fleet.Authority().PEM,
		fmt.Sprintf("--http2-max-streams-per-connection=%d", streams))
	if err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := e.serving.WaitReady(ready); err != nil {
		return err
	}
	say("serving is ready, process %d", e.serving.PID())
	return progress.Wait(ctx, f.warmup)
}

func (e *environment) stopServing() error {
	if e.serving == nil {
		return nil
	}
	err := e.serving.Stop()
	e.serving = nil
	return err
}

func (e *environment) startFleet(ctx context.Context, f *flags) error {
	var err error
	e.fleet, err = fleet.New(fleet.Options{
		Nodes: f.nodes, PodsPerNode: f.podsPerNode, Namespaces: f.namespaces(), Seed: 1,
		Answering: func(n *fleet.Node, at time.Time) { e.answered[n.Name].Store(at.UnixNano()) },
	})
	if err != nil {
		return err
	}
	for _, node := range e.fleet.Nodes() {
		at := new(atomic.Int64)
		e.answered[node.Name] = at
		for _, p := range node.Pods() {
			e.pods[p.Key().String()] = &pod{answered: at}
		}
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stopFleet = stop
	return e.fleet.Start(running)
}

// stop stops everything that was started.
func (e *environment) stop() error {
	var errs []error
	errs = append(errs, e.stopServing())
	if e.stopFleet != nil {
		e.stopFleet()
		e.fleet.Wait()
	}
	if e.plane != nil {
		errs = append(errs, e.plane.Stop())
	}
	return errors.Join(errs...)
}

// target returns what the n-th client asks for: one application of one namespace, so that
// clients are spread over all pods.
func (e *environment) target(n int) (namespace, app string) {
	namespaces := e.fleet.Namespaces()
	return namespaces[n%len(namespaces)], fmt.Sprintf("app-%02d", n/len(namespaces)%appsPerNamespace)
}

// checkBinary returns an error if the binary is missing.
func checkBinary(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("find the serving component's binary (make bench-watch builds it): %w", err)
	}
	return nil
}
