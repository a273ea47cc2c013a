// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wait is `kubectl metrics-backend wait`: it waits for a condition or a source of a MetricsBackend, for versions of a
// metrics API, or for its release.
package wait

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

const long = `Waits, and prints what is missing whenever that changes.

  ready                     the MetricsBackend is Ready, for its newest spec
  condition=NAME[=STATUS]   it has that condition, for its newest spec; True by default
  source=NAME               that source is healthy, and its pods use the newest spec
  versions=VERSION,VERSION  exactly these versions of metrics.k8s.io are registered,
                            available and in discovery; versions=none: no version is,
                            as after an uninstall. Those of another group are written
                            VERSION.GROUP. This one needs no MetricsBackend.
  released=GROUP            no APIService of that group is a MetricsBackend's, and no pods of
                            this one answer it any more

Exit codes: 0 it is so, 1 not within --timeout, 2 it could not be waited for.`

const example = `  # Has the change arrived?
  kubectl metrics-backend wait

  # May the pods of the old version go?
  kubectl metrics-backend wait --for=versions=v1beta1 --timeout=2m

  # Has prometheus-adapter's API moved here, with the version that it had not?
  kubectl metrics-backend wait --for=versions=v1beta2.custom.metrics.k8s.io,v1beta1.custom.metrics.k8s.io

  # One condition of one backend
  kubectl metrics-backend wait cluster --for=condition=CertificatesValid

  # Is the metrics API gone, so that namespaces can be deleted?
  kubectl metrics-backend wait --for=versions=none`

// defaultTimeout suffices for a rollout of a few pods with their first scrapes.
const defaultTimeout = 5 * time.Minute

// NewCommand returns `kubectl metrics-backend wait`.
func NewCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	text, timeout := "ready", defaultTimeout
	cmd := &cobra.Command{
		Use:               "wait [BACKEND]",
		Short:             "Wait for a MetricsBackend to be ready, or for API versions to be registered or removed",
		Long:              long,
		Example:           example,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: connection.CompleteBackend(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			goal, err := parseGoal(text)
			if err != nil {
				return err
			}
			if timeout < 0 {
				return errors.New("--timeout must not be negative")
			}
			cluster, err := connection.Open(flags, streams.ErrOut)
			if err != nil {
				return err
			}
			w := &waiter{cluster: cluster, streams: streams, clock: clock.RealClock{}, goal: goal, args: args, timeout: timeout}
			return w.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&text, "for", text, "What to wait for: ready, condition=NAME[=STATUS], source=NAME, released=GROUP or versions=VERSION,VERSION.")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "How long to wait; 0 looks once.")
	output.Complete(cmd, "for", "ready", "condition=Available", "condition=CertificatesValid", "versions=v1,v1beta1", "versions=v1beta1", "versions=none", "released=custom.metrics.k8s.io", "released=external.metrics.k8s.io")
	return cmd
}

// Until waits as the command does, for what text says in --for, of the named backend.
func Until(ctx context.Context, cluster *connection.Cluster, streams genericiooptions.IOStreams, clock clock.Clock, backend, text string, timeout time.Duration) error {
	goal, err := parseGoal(text)
	if err != nil {
		return err
	}
	return (&waiter{cluster: cluster, streams: streams, clock: clock, goal: goal, backend: backend, chosen: true, timeout: timeout}).run(ctx)
}

// choose returns the backend in args, or the only one. Waiting for versions needs no backend,
// and no permission to read backends.
func choose(ctx context.Context, cluster *connection.Cluster, args []string, goal goal) (string, error) {
	backends, err := cluster.Backends(ctx)
	switch {
	case connection.IsDenied(err) && len(args) == 0 && !goal.ofBackend():
		return "", nil
	case err != nil:
		return "", err
	case len(args) > 0:
		if err := connection.CheckBackendName(args[0], backends); err != nil {
			return "", err
		}
		return args[0], nil
	case len(backends) == 1:
		return backends[0].Name, nil
	case !goal.ofBackend():
		return "", nil
	}
	return "", connection.CheckBackendName("", backends)
}
