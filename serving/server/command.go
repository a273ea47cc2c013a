// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"

	"github.com/spf13/cobra"

	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/utils/clock"

	_ "k8s.io/component-base/logs/json/register"           // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/version"   // kubernetes_build_info
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // of the certificate controllers
)

// NewCommand returns the command of the serving component.
func NewCommand() *cobra.Command { return newCommand(NewOptions()) }

func newCommand(o *Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serving",
		Short: "Serves the Kubernetes metrics APIs",
		Long: "Serves metrics.k8s.io from kubelets, and custom.metrics.k8s.io and external.metrics.k8s.io from sources such as\n" +
			"Prometheus, as an aggregated API server.\n\n" +
			"In a cluster, metrics-backend-operator deploys it and --backend names the MetricsBackend whose settings it follows.\n" +
			"It also runs alone, with nothing but a kubeconfig and a manifest:\n\n" +
			"  serving --kubeconfig K --authentication-kubeconfig K --authorization-kubeconfig K --backend-file FILE --cert-dir DIR",
		Version: version(),
		Args:    cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if err := o.registry.Set(); err != nil {
				return fmt.Errorf("set feature gates: %w", err)
			}
			return logsapi.ValidateAndApply(o.Logging, utilfeature.DefaultFeatureGate)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := genericapiserver.SetupSignalContext()
			cliflag.PrintFlags(cmd.Flags())
			if err := o.Validate(); err != nil {
				return err
			}
			s, err := New(o, clock.RealClock{})
			if err != nil {
				return err
			}
			return s.Run(ctx)
		},
	}
	sets := o.Flags()
	// The options already have the logging flags: with a second -v, the random order of the
	// sets would decide which of them gets the value.
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	cmd.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	cliflag.SetUsageAndHelpFunc(cmd, sets, 0)
	return cmd
}
