// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/cgroups"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/components"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/leftovers"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/mounts"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/network"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/process"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

const (
	// componentGrace is short of a component's own: what it would still write goes with the store.
	componentGrace = 10 * time.Second
	// podGrace is for containers, whose work goes with the cluster too.
	podGrace = 2 * time.Second
)

// Down ends the cluster and removes what it left, in whatever state it is. Each step is tried even if one
// before it failed; the state directory goes only when all succeeded, so that down can be repeated.
func (c Cluster) Down(ctx context.Context) error {
	if err := privileged("down"); err != nil {
		return err
	}
	removed, err := c.foundOrAdopted()
	if err != nil || removed == nothing {
		return err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()

	settings, err := c.Dir.Settings()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		// What was before is not known then, and stays as it is.
		c.Report.Say("settings", "%v", brief(err))
	}
	outside, failed := leftovers.Find(c.Dir)
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"components", c.stopComponents},
		{"pods", func(ctx context.Context) error { return c.stopPods(ctx, removed) }},
		{"mounts", func(context.Context) error { return mounts.Remove(string(c.Dir)) }},
		{"network", func(ctx context.Context) error { return c.removeNetwork(ctx, removed, settings) }},
		{"kernel settings", func(context.Context) error { return restoreSysctls(removed, settings) }},
		{"control groups", func(ctx context.Context) error { return removeGroups(ctx, removed) }},
		{"files elsewhere", func(context.Context) error { return leftovers.Remove(outside) }},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			failed = errors.Join(failed, err)
			c.Report.Say(step.name, "failed: %v", brief(err))
			continue
		}
		c.Report.Say(step.name, "removed in %.1f s", time.Since(began).Seconds())
	}
	if failed != nil {
		return fmt.Errorf("%w\n(the state is still in %s; run down again)", failed, c.Dir)
	}
	if err := c.Dir.Remove(); err != nil {
		return err
	}
	c.Report.Say("cluster", "down, nothing left")
	return nil
}

// scope is what Down removes. The bridge, the control group, kube-proxy's tables and kernel settings exist once per
// machine.
type scope int

const (
	nothing scope = iota
	// ownOnly is without what exists once per machine: a cluster in another directory uses it.
	ownOnly
	everything
)

// foundOrAdopted says what there is to remove. A directory that was deleted by hand while its components ran
// is known by them and by the bridge; they have written to it since, so it is made ours again.
func (c Cluster) foundOrAdopted() (scope, error) {
	bridge, err := network.HaveBridge(string(c.Dir))
	foreign := errors.Is(err, network.ErrForeignBridge)
	if err != nil && !foreign {
		return nothing, err
	}
	if !c.Dir.Owned() {
		marked, err := process.Marked(c.Dir)
		if err != nil {
			return nothing, err
		}
		if !bridge && len(marked) == 0 {
			c.Report.Say("cluster", "there is none in %s; nothing to do", c.Dir)
			return nothing, nil
		}
		c.Report.Say("cluster", "%s was deleted and its cluster was not; removing what is known of it (kernel settings stay as they are)", c.Dir)
		if err := c.Dir.Save(state.Settings{}); err != nil {
			return nothing, err
		}
	}
	if foreign {
		c.Report.Say("cluster", "another cluster holds this machine's network; leaving that and its pods")
		return ownOnly, nil
	}
	return everything, nil
}

// stopComponents ends what is recorded, in order. An unreadable record is no reason to leave the others.
func (c Cluster) stopComponents(ctx context.Context) error {
	records, failed := process.Records(c.Dir)
	byName := map[string]process.Record{}
	for _, record := range records {
		byName[record.Name] = record
	}
	for _, name := range components.StopOrder {
		record, known := byName[name]
		if !known {
			continue
		}
		if err := process.Stop(ctx, componentGrace, record.Identity); err != nil {
			failed = errors.Join(failed, fmt.Errorf("stopping %s: %w", name, err))
			continue
		}
		failed = errors.Join(failed, process.Forget(c.Dir, name))
	}
	return failed
}

// stopPods ends every process of a container, the shims above them, and whatever else carries our mark.
// containerd has ended before, or it would make each of these deaths its business.
func (c Cluster) stopPods(ctx context.Context, removed scope) error {
	hierarchies, err := cgroups.Hierarchies()
	if err != nil {
		return err
	}
	if removed != everything {
		hierarchies = nil
	}
	inPods, err := cgroups.Processes(hierarchies)
	if err != nil {
		return err
	}
	if err := process.Stop(ctx, podGrace, inPods...); err != nil {
		return fmt.Errorf("ending the pods: %w", err)
	}
	shims, err := process.Shims(components.Socket(c.Dir))
	if err != nil {
		return err
	}
	marked, err := process.Marked(c.Dir)
	if err != nil {
		return err
	}
	var rest []process.Identity
	for _, found := range append(shims, marked...) {
		rest = append(rest, found.Identity)
	}
	if err := process.Kill(ctx, rest...); err != nil {
		return fmt.Errorf("ending the shims of containers: %w", err)
	}
	// One that was born while the others were being ended.
	if inPods, err = cgroups.Processes(hierarchies); err != nil {
		return err
	}
	return process.Kill(ctx, inPods...)
}

func (c Cluster) removeNetwork(ctx context.Context, removed scope, settings state.Settings) error {
	if removed != everything {
		return nil
	}
	have, err := network.HaveBridge(string(c.Dir))
	if err != nil {
		return err
	}
	// Without settings and without a bridge no kube-proxy of ours was ever started.
	if !have && settings.Created.IsZero() {
		return nil
	}
	return errors.Join(network.RemoveBridge(string(c.Dir)), network.RemoveTables(ctx, settings.Tables), network.ForgetConnections(ctx, settings.IPFamily))
}

func restoreSysctls(removed scope, settings state.Settings) error {
	if removed != everything {
		return nil
	}
	return network.RestoreSysctls(settings.Sysctls)
}

func removeGroups(ctx context.Context, removed scope) error {
	if removed != everything {
		return nil
	}
	hierarchies, err := cgroups.Hierarchies()
	if err != nil {
		return err
	}
	return cgroups.Remove(ctx, hierarchies)
}
