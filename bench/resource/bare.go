// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

// bareCommand is the argument with which this program runs as the bare reader. The path of
// its settings follows.
const bareCommand = "bare-reader"

// connectedLine is the first line that the bare reader prints.
const connectedLine = "connected\n"

// bareSettings are the settings of the bare reader.
type bareSettings struct {
	// Kubelets are their addresses, CA their certificate authority, PEM.
	Kubelets        []string
	CA              []byte
	Interval, Sweep time.Duration
}

// bareTotals is what the bare reader prints as its last line.
type bareTotals struct {
	Reads, Failed int
	Bytes         int64
	// FirstError is that of the first failed read.
	FirstError string `json:",omitempty"`
}

// bareProcess is a running bare reader.
type bareProcess struct {
	*cluster.Process
	input io.Closer
}

// startBare starts the bare reader, and waits until it has a connection to each kubelet.
func startBare(ctx context.Context, e *environment, f *flags, round int) (*bareProcess, error) {
	settings := bareSettings{CA: e.fleet.Authority().PEM, Interval: f.interval, Sweep: f.sweepEvery}
	// With one goroutine, a kubelet that hangs would delay all others.
	for _, node := range e.well {
		settings.Kubelets = append(settings.Kubelets, node.Address().String())
	}
	content, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("encode the settings of the bare reader: %w", err)
	}
	path := filepath.Join(e.folder, fmt.Sprintf("bare-%d.json", round+1))
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return nil, fmt.Errorf("write the settings of the bare reader: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	command := exec.Command(self, bareCommand, path)
	// It ends when its input ends, so that it does not survive this program.
	input, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("make the input of the bare reader: %w", err)
	}
	process, err := cluster.StartProcess("the bare reader", command, filepath.Join(e.folder, fmt.Sprintf("bare-%d.log", round+1)))
	if err != nil {
		return nil, err
	}
	p := &bareProcess{Process: process, input: input}
	if err := p.waitConnected(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *bareProcess) waitConnected(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not within %v", startTimeout))
	defer cancel()
	for {
		content, err := os.ReadFile(p.Log())
		if err != nil {
			return fmt.Errorf("wait until the bare reader is connected: %w", err)
		}
		if bytes.HasPrefix(content, []byte(connectedLine)) {
			return nil
		}
		select {
		case <-p.Ended():
			return p.Err()
		default:
		}
		if err := progress.Wait(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("wait until the bare reader is connected: %w", err)
		}
	}
}

// Stop ends the process.
func (p *bareProcess) Stop() error {
	_ = p.input.Close()
	return p.Process.Stop()
}

// check returns an error if more reads have failed than the scenario tolerates. The process
// must have ended.
func (p *bareProcess) check(s scenario) error {
	content, err := os.ReadFile(p.Log())
	if err != nil {
		return fmt.Errorf("read the totals of the bare reader: %w", err)
	}
	totals, err := parseTotals(content)
	if err != nil {
		return fmt.Errorf("read the totals of the bare reader from %s: %w", p.Log(), err)
	}
	if totals.Failed > s.tolerated(totals.Reads) || totals.Reads == 0 {
		return fmt.Errorf("%d reads of the bare reader failed and %d succeeded, first error: %s", totals.Failed, totals.Reads, totals.FirstError)
	}
	return nil
}

// parseTotals reads the last line of the bare reader's output.
func parseTotals(output []byte) (bareTotals, error) {
	var totals bareTotals
	lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
	err := json.Unmarshal(lines[len(lines)-1], &totals)
	return totals, err
}
