// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugin is the command tree of `kubectl metrics-backend`.
package plugin

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/metricsbackend/metrics-backend-operator/plugin/adapterconfig"
	"github.com/metricsbackend/metrics-backend-operator/plugin/adopt"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/explain"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
	"github.com/metricsbackend/metrics-backend-operator/plugin/status"
	"github.com/metricsbackend/metrics-backend-operator/plugin/top"
	"github.com/metricsbackend/metrics-backend-operator/plugin/verify"
	"github.com/metricsbackend/metrics-backend-operator/plugin/wait"
)

const long = `Displays what serves the metrics APIs of a cluster, checks metrics.k8s.io as KEP-5207
describes, waits for changes, and displays the usage of nodes and pods, once or live.

Exit codes: 0 when the answer is yes, 1 when a check failed or time ran out,
2 when the question could not be answered (flags, connection, permissions),
3 when an import lacks something that it warns of.`

// Main runs the plugin with the process' own streams and returns its exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	return run(ctx, args, streams)
}

func run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	cmd := NewCommand(streams) //nolint:contextcheck // cobra hands the context to each command
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	code := output.ExitCode(err)
	if code == output.NotRun {
		_, _ = fmt.Fprintln(streams.ErrOut, "error:", err)
	}
	return code
}

// NewCommand returns `kubectl metrics-backend` with all its commands.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	// Client libraries that log would mix their lines with the answer's.
	ctrllog.SetLogger(logr.Discard())

	// All but top is cluster-scoped, so there is no --namespace here to misread.
	flags := genericclioptions.NewConfigFlags(true)
	flags.Namespace = nil

	cmd := &cobra.Command{
		Use:   "kubectl-metrics_backend",
		Short: "Display, check and change what serves the metrics APIs of a cluster",
		Long:  long,
		// The name by which users call it.
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl metrics-backend"},
		Version:       connection.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.ErrOut)
	flags.AddFlags(cmd.PersistentFlags())
	addVerbosity(cmd)
	// As in kubectl, the help of a command does not repeat the flags of the connection.
	cmd.SetUsageTemplate(strings.Replace(cmd.UsageTemplate(), "{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}",
		`  Those of kubectl for the connection, and -v; "{{.Root.DisplayName}} --help" lists them.`, 1))
	cmd.AddCommand(
		adapterconfig.NewCommand(streams),
		adopt.NewCommand(flags, streams),
		adopt.NewReleaseCommand(flags, streams),
		explain.NewCommand(flags, streams),
		status.NewCommand(flags, streams),
		top.NewCommand(flags, streams),
		verify.NewCommand(flags, streams),
		verify.NewPreflightCommand(flags, streams),
		newVersionCommand(streams),
		wait.NewCommand(flags, streams),
	)
	return cmd
}

func newVersionCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this plugin", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(streams.Out, connection.Version())
			return err
		},
	}
}

// addVerbosity adds kubectl's -v, which shows requests from 6 on.
func addVerbosity(cmd *cobra.Command) {
	all := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(all)
	v := all.Lookup("v")
	v.Usage += "; 6 shows requests"
	cmd.PersistentFlags().AddGoFlag(v)
}
