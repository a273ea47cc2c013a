// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/bench/machine"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

// startTimeout is how long a contestant may take until it lists all pods.
const startTimeout = 5 * time.Minute

// measure measures a contestant with a new process.
func measure(ctx context.Context, e *environment, f *flags, one contestant, round int, say progress.Say) (values, error) {
	if one.kind == kindBare {
		return measureBare(ctx, e, f, round, say)
	}
	return measureServer(ctx, e, f, one, round, say)
}

func measureBare(ctx context.Context, e *environment, f *flags, round int, say progress.Say) (values, error) {
	reader, err := startBare(ctx, e, f, round)
	if err != nil {
		return nil, err
	}
	v := values{}
	if err := errors.Join(v.idle(ctx, f, reader.PID()), reader.Stop()); err != nil {
		return nil, err
	}
	say("%s, round %d, %s: %s, %s", e.scenario.name, round+1, kindBare, figures.MilliCPU.Format(v[cpuIdle]), figures.MiB.Format(v[rssSteady]))
	return v, reader.check(e.scenario)
}

func measureServer(ctx context.Context, e *environment, f *flags, one contestant, round int, say progress.Say) (v values, err error) {
	v = values{}
	started := time.Now()
	server, err := e.start(f, one)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if err := waitListed(ctx, e, server); err != nil {
		return nil, err
	}
	v[allListed] = time.Since(started).Seconds()
	say("%s, round %d, %s: all pods listed after %s", e.scenario.name, round+1, one.name, figures.Sec.Format(v[allListed]))
	if err := v.idle(ctx, f, server.PID()); err != nil {
		return nil, err
	}
	say("%s, round %d, %s: %s, %s", e.scenario.name, round+1, one.name, figures.MilliCPU.Format(v[cpuIdle]), figures.MiB.Format(v[rssSteady]))
	c, err := connect(ctx, server)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if !f.skips(onceAges, round) {
		if err := v.ages(ctx, c, e.fleet.Namespaces(), f.ages); err != nil {
			return nil, err
		}
	}
	if err := v.latencies(ctx, e, f, c); err != nil {
		return nil, err
	}
	if v[rssLists], err = rss(server.PID()); err != nil {
		return nil, err
	}
	say("%s, round %d, %s: LIST of all pods %s, GET of a pod %s, then %s", e.scenario.name, round+1, one.name,
		figures.Ms.Format(v[listJSON]), figures.Ms.Format(v[getPod]), figures.MiB.Format(v[rssLists]))
	if f.cpuProfile != "" && one.kind == kindServing && round == f.roundsOf(e.scenario)-1 {
		const profiled = 20 * time.Second
		serving := &cluster.Serving{Server: server}
		if err := serving.SaveProfiles(ctx, f.cpuProfile, one.name+"."+e.scenario.name, cluster.CPUProfile(profiled), cluster.HeapProfile); err != nil {
			return nil, err
		}
		say("profiles of %s are in %s", one.name, f.cpuProfile)
	}
	return v, nil
}

// waitListed waits until the server is ready and lists all pods of healthy kubelets. The connection is closed:
// servers close idle ones after 90 s.
func waitListed(ctx context.Context, e *environment, server *cluster.Server) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not within %v", startTimeout))
	defer cancel()
	if err := server.WaitReady(ctx); err != nil {
		return err
	}
	c, err := connect(ctx, server)
	if err != nil {
		return err
	}
	defer c.close()
	for {
		list, err := c.get(ctx, metricsAPI+"/pods", []string{"accept", asProtobuf}, true)
		if err != nil {
			return err
		}
		n, err := countListed(list.body, e.listed)
		if err != nil || n == len(e.listed) {
			return err
		}
		if err := progress.Wait(ctx, 250*time.Millisecond); err != nil {
			return fmt.Errorf("wait until all pods are listed: %d of %d: %w", n, len(e.listed), err)
		}
	}
}

// idle measures a process without requests, after some time.
func (v values) idle(ctx context.Context, f *flags, pid int) error {
	if err := progress.Wait(ctx, f.settle); err != nil {
		return err
	}
	before, err := readCosts(pid)
	if err != nil {
		return err
	}
	if err := progress.Wait(ctx, f.window); err != nil {
		return err
	}
	after, err := readCosts(pid)
	if err != nil {
		return err
	}
	span := after.at.Sub(before.at).Seconds()
	v[cpuIdle] = (after.process - before.process).Seconds() / span
	v[ownIdle] = (after.own - before.own).Seconds() / span
	v[busyIdle] = after.machine.Since(before.machine)
	v[rssSteady], err = rss(pid)
	return err
}

// agesStep is the time between two lists. It does not divide an interval: metrics-server updates all samples at
// the same time, which a list each second would meet at the same age each time.
const agesStep = 1100 * time.Millisecond

// ages measures the age of the samples that are served, by a list of all nodes and one of a namespace's pods each
// agesStep. The age is that at the time of the request. Each namespace has pods of all nodes. A list of all pods would take
// longer than a step while a server scrapes, so that fewer lists would be sent while its samples are oldest.
func (v values) ages(ctx context.Context, c *client, namespaces []string, span time.Duration) error {
	var nodes, pods figures.Durations
	began := time.Now()
	for n := 0; time.Since(began) < span; n = int(time.Since(began)/agesStep) + 1 {
		if err := progress.Wait(ctx, time.Until(began.Add(time.Duration(n)*agesStep))); err != nil {
			return err
		}
		ofNamespace := "/namespaces/" + namespaces[n%len(namespaces)] + "/pods"
		for path, ages := range map[string]*figures.Durations{"/nodes": &nodes, ofNamespace: &pods} {
			list, err := c.get(ctx, metricsAPI+path, []string{"accept", asProtobuf}, true)
			if err != nil {
				return err
			}
			if err := eachTimestamp(list.body, func(at time.Time) { ages.Add(list.sent.Sub(at)) }); err != nil {
				return err
			}
		}
	}
	v[nodeAgeP50], v[nodeAgeP99] = nodes.Quantile(0.5).Seconds(), nodes.Quantile(0.99).Seconds()
	v[podAgeP50], v[podAgeP99] = pods.Quantile(0.5).Seconds(), pods.Quantile(0.99).Seconds()
	return nil
}

// latencies measures all requests.
func (v values) latencies(ctx context.Context, e *environment, f *flags, c *client) error {
	before, err := machine.ReadLoad()
	if err != nil {
		return err
	}
	for _, r := range e.requests {
		l, err := r.measure(ctx, c, f.repetitions)
		if err != nil {
			return err
		}
		v[r.figure], v[sizeOf(r.figure)] = l.median.Seconds(), float64(l.size)
		if r.figure == listJSON {
			v[listJSONCold] = l.first.Seconds()
		}
	}
	after, err := machine.ReadLoad()
	if err != nil {
		return err
	}
	v[busyLists] = after.Since(before)
	return nil
}

func rss(pid int) (float64, error) {
	bytes, err := machine.RSS(pid)
	return float64(bytes), err
}

// costs are processor times so far.
type costs struct {
	at           time.Time
	process, own time.Duration
	machine      machine.Load
}

func readCosts(pid int) (c costs, err error) {
	if c.process, err = machine.CPU(pid); err != nil {
		return c, err
	}
	if c.own, err = machine.OwnCPU(); err != nil {
		return c, err
	}
	c.at = time.Now()
	c.machine, err = machine.ReadLoad()
	return c, err
}
