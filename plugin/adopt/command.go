// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adopt is `kubectl metrics-backend adopt` and `kubectl metrics-backend release`: the first puts what serves custom or external
// metrics behind a MetricsBackend, which passes on what it does not define itself, and the second gives it back.
package adopt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

const long = `Puts the implementation that serves custom or external metrics, such as KEDA, Datadog's
cluster agent or prometheus-adapter, behind a MetricsBackend. It becomes a source, and a
route leads to it what no rule, declared metric or earlier route answers; then the
MetricsBackend takes its APIService over. Autoscalers get the same values all the time.

Without --yes it writes nothing, and prints the commands instead, for a shell. With --yes
it makes the same writes, server-side and without force, and waits between them.

Exit codes: 0 printed or done, 1 refused, or a wait took longer than --timeout, 2 it could
not be determined or written.`

const example = `  # What would be written; then do it
  kubectl metrics-backend adopt external --source=keda
  kubectl metrics-backend adopt external --source=keda --yes`

// options are the command line's, and what the command works with.
type options struct {
	api             string // custom or external
	backend, source string
	yes             bool
	timeout         time.Duration

	// flags choose the cluster, for printed commands.
	flags   string
	cluster *connection.Cluster
	streams genericiooptions.IOStreams
	clock   clock.Clock
}

// refusal is an error that only a change by the user ends.
type refusal struct{ error }

func refusef(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// NewCommand returns `kubectl metrics-backend adopt`.
func NewCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, clock: clock.RealClock{}}
	cmd := o.newCommand(flags, (*options).adoption)
	cmd.Use, cmd.Short, cmd.Long, cmd.Example = "adopt custom|external", "Put what serves custom or external metrics behind a MetricsBackend", long, example
	cmd.Flags().StringVar(&o.backend, "backend", "", "Name of the MetricsBackend, which is created if there is none of that name. Default: the only one; without any, cluster.")
	cmd.Flags().StringVar(&o.source, "source", "", "Name of the source. Default: that of the Service.")
	return cmd
}

// NewReleaseCommand returns `kubectl metrics-backend release`.
func NewReleaseCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, clock: clock.RealClock{}}
	cmd := o.newCommand(flags, (*options).release)
	cmd.Use, cmd.Short, cmd.Long, cmd.Example = "release custom|external", "Give custom or external metrics back to what served them before", releaseLong, releaseExample
	return cmd
}

// newCommand returns a command that prints a plan, or does it.
func (o *options) newCommand(flags genericclioptions.RESTClientGetter, planned func(*options, context.Context) (*plan, error)) *cobra.Command {
	cmd := &cobra.Command{
		ValidArgs: []string{"custom", "external"}, Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.timeout < 0 {
				return errors.New("--timeout must not be negative")
			}
			if o.cluster, err = connection.Open(flags, o.streams.ErrOut); err != nil {
				return err
			}
			o.api, o.flags = args[0], connection.Flags(cmd.Flags())
			return o.run(cmd.Context(), planned)
		},
	}
	cmd.Flags().BoolVar(&o.yes, "yes", false, "Do it, instead of printing the commands.")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "How long each wait may take.")
	return cmd
}

// run prints a plan, or does it.
func (o *options) run(ctx context.Context, planned func(*options, context.Context) (*plan, error)) error {
	p, err := planned(o, ctx)
	switch {
	case err != nil:
		return o.explained(err)
	case o.yes:
		return o.do(ctx, p)
	}
	_, err = fmt.Fprint(o.streams.Out, o.script(p))
	return err
}

// explained prints a refusal, which is an answer, and returns other errors.
func (o *options) explained(err error) error {
	if !errors.As(err, new(refusal)) {
		return err
	}
	_, _ = fmt.Fprintln(o.streams.ErrOut, "error:", strings.TrimSpace(err.Error()))
	return output.ErrNotMet
}
