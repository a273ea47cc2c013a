// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

// manifest of the backend: the defaults.
const manifest = `apiVersion: metricsbackend.io/v1alpha1
kind: MetricsBackend
metadata: {name: cluster}
spec:
  resourceMetrics:
    scrape: {interval: %s}
`

// environment is what all contestants run against.
type environment struct {
	folder    string
	plane     *cluster.ControlPlane
	fleet     *fleet.Fleet
	stopFleet context.CancelFunc
	// pods is the number of all pods.
	pods int

	// Set by apply:

	scenario scenario
	// well are the kubelets without a fault, and listed the names of their pods.
	well     []*fleet.Node
	listed   map[podName]bool
	requests []*request
}

// startEnvironment takes minutes with many nodes, since it writes their pods.
func startEnvironment(ctx context.Context, f *flags, folder string, say progress.Say) (e *environment, err error) {
	e = &environment{folder: folder}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.stop())
		}
	}()
	e.fleet, err = fleet.New(fleet.Options{Nodes: f.nodes, PodsPerNode: f.podsPerNode, ContainersPerPod: f.containers, Seed: 1})
	if err != nil {
		return e, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stopFleet = stop
	if err := e.fleet.Start(running); err != nil {
		return e, err
	}
	for _, node := range e.fleet.Nodes() {
		e.pods += len(node.Pods())
	}
	if f.standIn() {
		if e.plane, err = cluster.StartStandIn(folder, e.fleet); err != nil { //nolint:contextcheck // it serves until it is closed
			return e, err
		}
		say("a stand-in of kube-apiserver has %d nodes and %d pods", f.nodes, e.pods)
		return e, nil
	}
	if e.plane, err = cluster.StartControlPlane(ctx, folder); err != nil {
		return e, err
	}
	say("kube-apiserver and etcd run")
	client, err := fleet.NewClient(e.plane.Config)
	if err != nil {
		return e, err
	}
	if err := fleet.NewWriter(client, e.fleet, 0).Sync(ctx); err != nil {
		return e, err
	}
	say("%d nodes and %d pods are written", f.nodes, e.pods)
	return e, nil
}

// apply lets the kubelets answer as in a scenario.
func (e *environment) apply(s scenario) error {
	well, err := s.apply(e.fleet)
	if err != nil {
		return fmt.Errorf("let kubelets answer as in scenario %s: %w", s.name, err)
	}
	e.scenario, e.well, e.listed = s, well, map[podName]bool{}
	for _, node := range well {
		for _, pod := range node.Pods() {
			e.listed[podName{pod.Namespace, pod.Name}] = true
		}
	}
	e.requests = newRequests(e.fleet, well, s)
	return nil
}

// stop stops everything that was started.
func (e *environment) stop() error {
	if e.stopFleet != nil {
		e.stopFleet()
		e.fleet.Wait()
	}
	if e.plane != nil {
		return e.plane.Stop()
	}
	return nil
}

// start starts a contestant that serves metrics.k8s.io.
func (e *environment) start(f *flags, one contestant) (*cluster.Server, error) {
	ca := e.fleet.Authority().PEM
	if one.kind == kindMetricsServer {
		return cluster.StartMetricsServer(e.plane, one.binary, ca, f.interval)
	}
	s, err := cluster.StartServing(e.plane, one.binary, fmt.Appendf(nil, manifest, f.interval), ca)
	if err != nil {
		return nil, err
	}
	return s.Server, nil
}
