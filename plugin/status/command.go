// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/structured"
	"github.com/metricsbackend/metrics-backend-operator/plugin/tree"
)

const long = `Shows each MetricsBackend with its conditions, the APIServices of the metrics APIs
(whoever owns them), the pods and the versions that each serves, the end of
certificates, the clients by version, the sources, and the rules that fail.

What a pod serves is what it told the operator: asking a pod by itself would show it
your credentials.`

const example = `  kubectl metrics status
  kubectl metrics status cluster -o yaml`

// NewCommand returns `kubectl metrics status`.
func NewCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:               "status [BACKEND]",
		Short:             "Show what serves the metrics APIs, and how it is",
		Long:              long,
		Example:           example,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: connection.CompleteBackend(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			printer, err := printerFor(output)
			if err != nil {
				return err
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			cluster, err := connection.Open(flags, streams.ErrOut)
			if err != nil {
				return err
			}
			report, err := read(cmd.Context(), cluster, name)
			if err != nil {
				return err
			}
			return printer(streams.Out, report, cluster)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", output, "Output format: text, json or yaml.")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

type printer func(io.Writer, *Report, *connection.Cluster) error

func printerFor(output string) (printer, error) {
	switch output {
	case "text":
		return func(w io.Writer, report *Report, cluster *connection.Cluster) error {
			return tree.Print(w, trees(report, cluster.Now())...)
		}, nil
	case "json":
		return func(w io.Writer, report *Report, _ *connection.Cluster) error {
			return structured.JSON(w, report)
		}, nil
	case "yaml":
		return func(w io.Writer, report *Report, _ *connection.Cluster) error {
			return structured.YAML(w, report)
		}, nil
	}
	return nil, fmt.Errorf("--output %q: must be text, json or yaml", output)
}
