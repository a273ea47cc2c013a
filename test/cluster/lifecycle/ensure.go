// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/components"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/process"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

const (
	// startTimeout is for a machine that compiles at the same time.
	startTimeout = 3 * time.Minute
	// patience is how long a running component may be unhealthy before it is restarted.
	patience    = 15 * time.Second
	portTimeout = 5 * time.Second
	interval    = 100 * time.Millisecond
)

// ensure brings a component to health: left alone if it is, restarted if it is not or is configured otherwise.
func (c Cluster) ensure(ctx context.Context, component components.Component) (started bool, err error) {
	record, known, err := process.Load(c.Dir, component.Name)
	if err != nil {
		return false, err
	}
	if known && record.Alive() {
		if record.Fingerprint == component.Fingerprint() {
			err := healthy(ctx, component, record.Identity, nil, patience)
			if err == nil {
				return false, nil
			}
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			c.Report.Say(component.Name, "runs but is not healthy, restarting: %v", brief(err))
		} else {
			c.Report.Say(component.Name, "is to be configured differently, restarting")
		}
		if err := process.Stop(ctx, component.Grace, record.Identity); err != nil {
			return false, fmt.Errorf("stopping %s: %w", component.Name, err)
		}
	}
	return true, c.start(ctx, component)
}

// start starts a component that does not run, and waits until it is healthy.
func (c Cluster) start(ctx context.Context, component components.Component) error {
	if err := free(ctx, component); err != nil {
		return err
	}
	if err := component.Write(); err != nil {
		return err
	}
	began := time.Now()
	running, err := process.Start(c.Dir, component.Command())
	if err != nil {
		return err
	}
	if err := healthy(ctx, component, running.Identity, running.Exited(), startTimeout); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("starting %s: %w; the end of %s:\n%s", component.Name, err, c.Dir.Log(component.Name), tail(c.Dir.Log(component.Name)))
	}
	c.Report.Say(component.Name, "healthy after %.1f s, pid %d", time.Since(began).Seconds(), running.PID)
	return nil
}

// free waits a little for the component's ports: the kernel closes those of a killed process on its own time.
func free(ctx context.Context, component components.Component) error {
	waiting, cancel := context.WithTimeout(ctx, portTimeout)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := component.Free()
		if err == nil {
			return nil
		}
		select {
		case <-waiting.Done():
			return err
		case <-ticker.C:
		}
	}
}

var errEnded = errors.New("the process has ended")

// healthy waits until the probe succeeds.
func healthy(ctx context.Context, component components.Component, id process.Identity, exited <-chan struct{}, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := component.Probe(ctx)
		if !id.Alive() {
			return errEnded
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not healthy within %s: %w", within, err)
		case <-exited:
			return errEnded
		case <-ticker.C:
		}
	}
}

// strays ends components that a killed run started and had no time to record.
func (c Cluster) strays(ctx context.Context, all []components.Component) error {
	records, err := process.Records(c.Dir)
	if err != nil {
		return err
	}
	recorded := map[process.Identity]bool{}
	for _, record := range records {
		recorded[record.Identity] = true
	}
	programs := map[string]bool{}
	for _, component := range all {
		programs[component.Path] = true
	}
	marked, err := process.Marked(c.Dir)
	if err != nil {
		return err
	}
	for _, found := range marked {
		if recorded[found.Identity] || !programs[strings.TrimSuffix(found.Executable, " (deleted)")] {
			continue
		}
		c.Report.Say("process", "%d (%s) was left by a killed run; ending it", found.PID, found.Executable)
		if err := process.Kill(ctx, found.Identity); err != nil {
			return err
		}
	}
	return nil
}

// tail returns the last lines of a log.
func tail(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = file.Close() }()
	const size = 3000
	if info, err := file.Stat(); err == nil && info.Size() > size {
		if _, err := file.Seek(-size, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	content, err := io.ReadAll(io.LimitReader(file, size))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// brief is an error on one line.
func brief(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	const longest = 160
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return text
}

// settings returns the settings of the cluster that is to be, new or as they are.
func (c Cluster) settings(read func() (state.Settings, error)) (state.Settings, error) {
	settings, err := c.Dir.Settings()
	if errors.Is(err, os.ErrNotExist) {
		return read()
	}
	return settings, err
}
