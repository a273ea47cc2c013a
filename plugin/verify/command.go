// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// retryInterval is the time between two runs within --timeout.
const retryInterval = 2 * time.Second

const (
	example = `  # Is everything as it should be?
  kubectl metrics-backend verify

  # After a rollback: v1beta1 and nothing else, within two minutes
  kubectl metrics-backend verify --expect v1beta1 --timeout 2m

  # In a pipeline
  kubectl metrics-backend verify --expect v1,v1beta1 -o junit > metrics.xml

  # An autoscaler that never worked is not the upgrade's fault
  kubectl metrics-backend verify --skip hpa-active=hpa/default/broken`
	preflightExample = `  # Before an APIService of metrics-server is taken over (adoption: Always)
  kubectl metrics-backend preflight`

	long = `Checks metrics.k8s.io as KEP-5207 wants it verified after an upgrade, a rollback or a
migration, whoever serves it, and that custom.metrics.k8s.io and external.metrics.k8s.io
of MetricsBackends are there. Each line tells what was looked at and, where it is not
as it should be, what to do, with the next command to type on a line of its own.
Discovery and metrics are those of the kube-apiserver that answers.
`
	preflightLong = `Checks whether the serving pods can take over an APIService that another implementation
serves now. It changes nothing.
`
	exitCodes = `
Exit codes: 0 all checks passed (warnings and skipped ones included), 1 a check
failed, 2 the checks could not be run.

Checks:`
)

type options struct {
	streams genericiooptions.IOStreams
	clock   clock.Clock
	command string
	checks  []check

	expect  []string
	output  string
	skip    []string
	timeout time.Duration
	maxAge  time.Duration
	// flags are appended to commands.
	flags string
}

// NewCommand returns `kubectl metrics-backend verify`.
func NewCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, command: "verify", checks: checks}
	cmd := o.newCommand(flags, "Check the metrics APIs after an upgrade, a rollback or a migration", long, example)
	fs := cmd.Flags()
	fs.StringSliceVar(&o.expect, "expect", nil, "Versions that must be served, and no others, such as v1,v1beta1. "+
		"Default: what the MetricsBackends want; without any, v1beta1 and what is registered.")
	fs.DurationVar(&o.maxAge, "max-age", 0, "Age up to which a sample is fresh. Default: maxSampleAge of the MetricsBackend; 90s without any.")
	output.Complete(cmd, "expect", "v1", "v1beta1")
	return cmd
}

// NewPreflightCommand returns `kubectl metrics-backend preflight`.
func NewPreflightCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, command: "preflight", checks: preflightChecks}
	return o.newCommand(flags, "Check whether an APIService of another implementation can be taken over", preflightLong, preflightExample)
}

func (o *options) newCommand(flags genericclioptions.RESTClientGetter, short, long, example string) *cobra.Command {
	o.clock = clock.RealClock{}
	list := exitCodes
	for _, c := range o.checks {
		list += fmt.Sprintf("\n  %-22s %s", c.id, c.description)
	}
	cmd := &cobra.Command{
		Use:     o.command,
		Short:   short,
		Long:    long + list,
		Example: example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			cluster, err := connection.Open(flags, o.streams.ErrOut)
			if err != nil {
				return err
			}
			o.flags = connection.Flags(cmd.Flags())
			return o.run(cmd.Context(), cluster)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.output, "output", "o", "text", "Output format: text, json, yaml or junit.")
	fs.StringSliceVar(&o.skip, "skip", nil, "Checks to leave out: ID, or ID=SUBJECT for one of its lines.")
	fs.DurationVar(&o.timeout, "timeout", 0, "How long checks that fail are tried again before the run fails. 0 looks once.")
	output.Complete(cmd, "output", "text", "json", "yaml", "junit")
	output.Complete(cmd, "skip", o.ids()...)
	return cmd
}

func (o *options) ids() []string {
	var ids []string
	for _, c := range o.checks {
		ids = append(ids, c.id)
	}
	return ids
}

func (o *options) validate() error {
	if formats[o.output] == nil {
		return fmt.Errorf("--output %q: must be text, json, yaml or junit", o.output)
	}
	for i, version := range o.expect {
		version = strings.TrimSuffix(version, "."+group)
		o.expect[i] = version
		if !aggregation.IsVersion(version) {
			return fmt.Errorf("--expect %q: must be versions of %s such as v1,v1beta1", version, group)
		}
	}
	for _, s := range o.skip {
		if id, _, _ := strings.Cut(s, "="); !slices.Contains(o.ids(), id) {
			return fmt.Errorf("--skip %q: there is no such check; known: %s", s, strings.Join(o.ids(), ", "))
		}
	}
	if o.timeout < 0 || o.maxAge < 0 {
		return errors.New("--timeout and --max-age must not be negative")
	}
	return nil
}

// run repeats the checks until all pass or the timeout ends, and prints the last report.
func (o *options) run(ctx context.Context, cluster *connection.Cluster) error {
	deadline := o.clock.Now().Add(o.timeout)
	printed := ""
	for {
		snap := &snapshot{cluster: cluster, options: o}
		report, err := snap.verify(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted: %w", context.Cause(ctx))
		}
		left := deadline.Sub(o.clock.Now())
		if left <= 0 || isFinal(report, err) {
			return o.finish(report, err)
		}
		if waiting := progress(report, err); waiting != printed {
			_, _ = fmt.Fprintln(o.streams.ErrOut, waiting)
			printed = waiting
		}
		select {
		case <-ctx.Done():
		case <-o.clock.After(min(retryInterval, left)):
		}
	}
}

// isFinal reports whether a retry is useless: all checks passed, or permissions are missing.
func isFinal(report *Report, err error) bool {
	if err != nil {
		return connection.IsDenied(err)
	}
	return report.Outcome != Fail
}

func (o *options) finish(report *Report, err error) error {
	if err != nil {
		return err
	}
	if err := formats[o.output](o.streams.Out, report); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	switch report.Outcome {
	case Fail:
		return output.ErrNotMet
	case Error:
		if n := report.count(Error); n > 1 {
			return fmt.Errorf("%d checks could not be run", n)
		}
		return errors.New("1 check could not be run")
	}
	return nil
}

// progress returns the names of the checks that failed or could not be run, without messages, which contain ages.
func progress(report *Report, err error) string {
	if err != nil {
		return "waiting: " + err.Error()
	}
	var lines []string
	for _, check := range report.Checks {
		if check.Outcome == Fail || check.Outcome == Error {
			lines = append(lines, check.ID+" "+check.Subject)
		}
	}
	return "waiting for " + strings.Join(lines, ", ")
}
