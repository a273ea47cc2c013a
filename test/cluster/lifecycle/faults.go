// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/components"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/process"
)

// Stop ends a component as an administrator would, and waits until it is gone.
func (c Cluster) Stop(ctx context.Context, name string) error {
	return c.each(ctx, "stop", name, func(component components.Component) error {
		record, running, err := c.running(name)
		if err != nil || !running {
			return err
		}
		if err := process.Stop(ctx, component.Grace, record.Identity); err != nil {
			return fmt.Errorf("stopping %s: %w", name, err)
		}
		c.Report.Say(name, "stopped")
		return nil
	})
}

// Kill ends a component with SIGKILL.
func (c Cluster) Kill(ctx context.Context, name string) error {
	return c.each(ctx, "kill", name, func(components.Component) error {
		record, running, err := c.running(name)
		if err != nil || !running {
			return err
		}
		if err := process.Kill(ctx, record.Identity); err != nil {
			return fmt.Errorf("killing %s: %w", name, err)
		}
		c.Report.Say(name, "killed")
		return nil
	})
}

// Start starts a component that does not run, and waits until it is healthy.
func (c Cluster) Start(ctx context.Context, name string) error {
	return c.each(ctx, "start", name, func(component components.Component) error {
		record, known, err := process.Load(c.Dir, name)
		if err != nil {
			return err
		}
		if known && record.Alive() {
			c.Report.Say(name, "runs already, pid %d", record.PID)
			return nil
		}
		return c.start(ctx, component)
	})
}

// each checks what all of them need: rights, a cluster, a component of that name, the lock.
func (c Cluster) each(ctx context.Context, command, name string, do func(components.Component) error) error {
	if err := privileged(command); err != nil {
		return err
	}
	if !c.Dir.Owned() {
		return fmt.Errorf("%s: %w", c.Dir, ErrNoCluster)
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := c.components()
	if err != nil {
		return err
	}
	component, err := components.Named(all, name)
	if err != nil {
		return err
	}
	return do(component)
}

func (c Cluster) running(name string) (process.Record, bool, error) {
	record, known, err := process.Load(c.Dir, name)
	if err != nil {
		return record, false, err
	}
	if !known || !record.Alive() {
		c.Report.Say(name, "does not run")
		return record, false, nil
	}
	return record, true, nil
}
