// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/tiers"
)

// errFailed means that tests failed, which is in the output already.
var errFailed = errors.New("failed")

// dumpTime is the time that test binaries get to print their goroutines.
const dumpTime = 20 * time.Second

// partRun is one run of go test.
type partRun struct {
	results, name, dir, tier string
	verbose, again           bool
	arguments                []string
	// limit is the remaining time of the part.
	limit time.Duration
}

func (p *partRun) run(ctx context.Context, out io.Writer) error {
	if err := p.setLimit(); err != nil {
		return err
	}
	return p.test(ctx, out)
}

// test runs go test, prints its output, and records the results.
func (p *partRun) test(ctx context.Context, out io.Writer) error {
	run := Run{Part: p.name, Arguments: strings.Join(p.arguments, " ")}
	index := 0
	if err := update(p.results, func(r *Results) { index, r.Runs = len(r.Runs), append(r.Runs, run) }); err != nil {
		return err
	}
	began := time.Now()
	recorder := newRecorder(p.name, p.again, p.verbose, out)
	// go test's -timeout is per package; watch enforces the limit for all of them. The unit part runs go vet, with all
	// tags: go test's own would analyze all dependencies once more for each set of flags.
	cmd := exec.Command("go", append([]string{"test", "-json", "-vet=off", "-timeout", p.limit.String()}, p.arguments...)...)
	cmd.Dir = p.dir
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("running go test: %w", err)
	}
	ended := make(chan struct{})
	watched := make(chan bool, 1)
	go func() { watched <- p.watch(ctx, cmd.Process.Pid, ended) }()
	failed := recorder.read(stdout)
	failed = errors.Join(failed, cmd.Wait())
	close(ended)
	overran := <-watched
	recorder.complete(p, overran, failed)
	run.Seconds, run.Ended = time.Since(began).Seconds(), true
	if err := update(p.results, func(r *Results) { r.Runs[index] = run; r.add(recorder.results) }); err != nil {
		return err
	}
	if failed != nil || overran {
		return errFailed
	}
	return nil
}

// setLimit sets the limit to the remaining time of the part. A second run gets the remaining time of all parts together,
// but at most its part's limit.
func (p *partRun) setLimit() error {
	limit, err := tiers.Limit(tiers.Tier(p.tier), p.name)
	if err != nil {
		return err
	}
	earlier, err := load(p.results)
	if err != nil {
		return err
	}
	left := limit - earlier.took(p.name)
	if p.again {
		left = min(limit, tiers.Total(tiers.Tier(p.tier))-earlier.took(tiers.Parts...))
	}
	// At least a minute, to show which test hangs.
	p.limit = max(left, time.Minute)
	return nil
}

// watch ends the run when it exceeds its limit, and reports whether it did: on SIGQUIT, test binaries print their
// goroutines. It forwards interrupts, since the run has its own process group.
func (p *partRun) watch(ctx context.Context, group int, ended <-chan struct{}) bool {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	limit := time.NewTimer(p.limit)
	defer limit.Stop()
	overran := false
	end := func(first syscall.Signal) {
		_ = syscall.Kill(-group, first)
		select {
		case <-ended:
		case <-time.After(dumpTime):
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
	}
	select {
	case <-ended:
	case <-limit.C:
		overran = true
		end(syscall.SIGQUIT)
	case <-signals:
		end(syscall.SIGTERM)
	case <-ctx.Done():
		end(syscall.SIGTERM)
	}
	return overran
}

// complete adds failures that belong to no test: an exceeded limit, a failed build, an interrupted run.
func (r *recorder) complete(p *partRun, overran bool, failed error) {
	// A package without an end was running when go test ended.
	for name, p := range r.packages {
		if name != "" && !p.ended && len(p.tests) > 0 {
			p.crashed = true
			r.packageFailed(name, p)
		}
	}
	var exit *exec.ExitError
	switch {
	case overran:
		r.results.Failures = append(r.results.Failures, Failure{
			Part: p.name, Again: p.again, Output: fmt.Sprintf("not done within its limit of %s; all goroutines are above\n", p.limit),
		})
	case failed != nil && (len(r.results.Failures) == 0 || !errors.As(failed, &exit) || exit.ExitCode() != 1):
		r.results.Failures = append(r.results.Failures, Failure{Part: p.name, Again: p.again, Output: fmt.Sprintf("go test: %v\n", failed)})
	}
}
