// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command resource measures metrics.k8s.io of the serving component side by side with
// metrics-server, on loopback, with the same fake kubelets and the same kube-apiserver. See
// bench/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/metricsbackend/metrics-backend-operator/bench/machine"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

func main() {
	// The bare reader is a process of its own, so that the kernel measures its cost.
	if len(os.Args) == 3 && os.Args[1] == bareCommand {
		if err := runBare(os.Args[2]); err != nil {
			fmt.Fprintf(os.Stderr, "bare reader: %v\n", err)
			os.Exit(1)
		}
		return
	}
	progress.Main("resource", parse, run)
}

func run(ctx context.Context, f *flags, folder string, out io.Writer, say progress.Say) (err error) {
	field, err := f.field()
	if err != nil {
		return err
	}
	for _, one := range field {
		if one.binary == "" {
			continue
		}
		if _, err := os.Stat(one.binary); err != nil {
			return fmt.Errorf("find the binary of %s (make bench builds it): %w", one.name, err)
		}
	}
	e, err := startEnvironment(ctx, f, folder, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	selected, err := scenariosNamed(f.scenarios)
	if err != nil {
		return err
	}
	var groups []group
	for _, s := range selected {
		all, err := measureScenario(ctx, e, f, s, field, say)
		if err != nil {
			return fmt.Errorf("%s, %w", s.name, err)
		}
		groups = append(groups, group{s, all})
	}
	report(out, f, e, field, groups)
	if f.document == "" || !recordable(field) {
		return nil
	}
	caption := func(groups []group) string { return caption(f, e, groups) }
	if err := write(f, sections(f, e.pods, machine.Name(), caption, field, groups)); err != nil {
		return err
	}
	say("the tables are in %s and the picture is %s", filepath.Clean(f.document), filepath.Clean(f.plot))
	return nil
}

// measureScenario measures all rounds of a scenario.
func measureScenario(ctx context.Context, e *environment, f *flags, s scenario, field []contestant, say progress.Say) (results, error) {
	if err := e.apply(s); err != nil {
		return nil, err
	}
	all := results{}
	for round := range f.roundsOf(s) {
		// Each contestant is as often before the others as after them.
		order := slices.Clone(field)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, one := range order {
			if one.kind == kindBare && f.skips(onceBare, round) {
				continue
			}
			values, err := measure(ctx, e, f, one, round, say)
			if err != nil {
				return nil, fmt.Errorf("round %d, %s: %w", round+1, one.name, err)
			}
			all[one.name] = append(all[one.name], values)
		}
	}
	return all, nil
}
