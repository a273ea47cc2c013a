// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

const long = `Shows each MetricsBackend with its conditions, the APIServices of the metrics APIs
(whoever owns them), the pods and the versions that each serves, the end of
certificates, the clients by version, the sources, and the rules that fail. Below what
fails is the next command to type.

What a pod serves is what it told the operator: asking a pod by itself would show it
your credentials.`

const example = `  kubectl metrics-backend status
  kubectl metrics-backend status cluster -o yaml`

// NewCommand returns `kubectl metrics-backend status`.
func NewCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	var format output.Format
	cmd := &cobra.Command{
		Use:               "status [BACKEND]",
		Short:             "Display what serves the metrics APIs, and its state",
		Long:              long,
		Example:           example,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: connection.CompleteBackend(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := format.Validate(); err != nil {
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
			report.flags = connection.Flags(cmd.Flags())
			return format.Print(streams.Out, report, trees(report, cluster.Now())...)
		},
	}
	format.AddFlag(cmd)
	return cmd
}
