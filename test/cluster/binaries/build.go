// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/progress"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// Build builds the named binaries that are missing, or all of them without names, and returns their folder. kubernetes
// is their version, such as v1.31.4; etcd is always go.mod's.
func Build(ctx context.Context, report *progress.Reporter, kubernetes string, names ...string) (string, error) {
	selected, err := selectTools(names)
	if err != nil {
		return "", err
	}
	module, err := Module(ctx)
	if err != nil {
		return "", err
	}
	target, err := folder(module, kubernetes)
	if err != nil {
		return "", err
	}
	if len(missing(target, selected)) == 0 {
		return target, nil
	}
	// Two concurrent builds would compile everything twice: the second one waits.
	unlock, err := state.LockFile(ctx, target+".lock", func() {
		report.Say("binaries", "another run builds them; waiting")
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := os.MkdirAll(target, 0o755); err != nil {
		return "", fmt.Errorf("creating the folder of the binaries: %w", err)
	}
	wanted := missing(target, selected)
	if kubernetes != KubernetesVersion {
		other := filepath.Join(target, "module")
		ofRelease := slices.DeleteFunc(slices.Clone(wanted), tool.isEtcd)
		if len(ofRelease) > 0 {
			if err := makeModule(ctx, other, kubernetes); err != nil {
				return "", err
			}
		}
		if err := build(ctx, report, other, target, kubernetes, ofRelease); err != nil {
			return "", err
		}
		wanted = slices.DeleteFunc(wanted, func(t tool) bool { return !t.isEtcd() })
	}
	return target, build(ctx, report, module, target, kubernetes, wanted)
}

func missing(folder string, wanted []tool) []tool {
	var absent []tool
	for _, t := range wanted {
		if info, err := os.Stat(filepath.Join(folder, t.name)); err != nil || !info.Mode().IsRegular() {
			absent = append(absent, t)
		}
	}
	return absent
}

// Module returns the folder of this module, found by the go command from the working directory.
func Module(ctx context.Context) (string, error) {
	out, err := goOutput(ctx, "", "list", "-m", "-f", "{{.Path}} {{.Dir}}")
	if err != nil {
		return "", err
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if path != modulePath {
		return "", fmt.Errorf("the binaries are built from the module %s, but the working directory is in %s; run `go -C test/cluster run . COMMAND`", modulePath, path)
	}
	return dir, nil
}

// build builds all of them with one go command, which links some while it compiles others.
func build(ctx context.Context, report *progress.Reporter, module, target, kubernetes string, wanted []tool) error {
	if len(wanted) == 0 {
		return nil
	}
	started := time.Now()
	packages, names := make([]string, 0, len(wanted)), make([]string, 0, len(wanted))
	for _, t := range wanted {
		packages, names = append(packages, t.pkg), append(names, t.name)
	}
	report.Say("binaries", "building %s from source, for Kubernetes %s (all of them about 8 minutes on 2 cores, the first time)", strings.Join(names, ", "), kubernetes)
	// This also downloads the modules.
	dependencies, err := goOutput(ctx, module, append([]string{"list", "-deps"}, packages...)...)
	if err != nil {
		return err
	}
	all := bytes.Count(dependencies, []byte("\n"))
	// On the same file system, so that each rename is atomic; a killed build leaves no partial binary.
	partial := filepath.Join(target, ".partial")
	defer func() { _ = os.RemoveAll(partial) }()
	err = Go(ctx, module, func(compiled int) {
		report.Tick("binaries", "%s, %d packages compiled, at most %d left", progress.Clock(time.Since(started)), compiled, max(all-compiled, 0))
	}, report.Interval(), append([]string{"build", "-v", "-ldflags", linkerFlags(kubernetes), "-o", partial + string(filepath.Separator)}, packages...)...)
	if err != nil {
		return fmt.Errorf("building %s: %w", strings.Join(names, ", "), err)
	}
	for _, t := range wanted {
		if err := os.Rename(filepath.Join(partial, t.output()), filepath.Join(target, t.name)); err != nil {
			return fmt.Errorf("building %s: %w", t.name, err)
		}
	}
	report.Say("binaries", "built in %s", progress.Clock(time.Since(started)))
	return nil
}

// goOutput returns the output of the go command in a folder. Its error has the command's own message.
func goOutput(ctx context.Context, folder string, args ...string) ([]byte, error) {
	out, err := command(ctx, folder, args...).Output()
	if err == nil {
		return out, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return nil, fmt.Errorf("running go %s: %w", args[0], err)
}

// command returns the go command without cgo in the module.
func command(ctx context.Context, module string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	return cmd
}

// Go runs the go command without cgo in the module. Each interval it calls tick with the number of
// compiled packages, which needs the argument -v.
func Go(ctx context.Context, module string, tick func(packages int), interval time.Duration, args ...string) error {
	cmd := command(ctx, module, args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("running go %s: %w", args[0], err)
	}
	var (
		packages atomic.Int64
		output   []string
		read     = make(chan struct{})
	)
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			line := lines.Text()
			// -v prints one import path per line; other lines are errors.
			if line != "" && !strings.ContainsAny(line, " :") {
				packages.Add(1)
				continue
			}
			output = append(output, line)
		}
	}()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			tick(int(packages.Load()))
			continue
		case <-read:
		}
		break
	}
	if err := cmd.Wait(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return errors.Join(err, errors.New(strings.Join(output[max(0, len(output)-20):], "\n")))
	}
	return nil
}
