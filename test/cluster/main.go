// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cluster runs a real one-node Kubernetes cluster from Go modules, on a plain Linux machine.
//
//	go -C test/cluster run . up
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/binaries"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/images"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/progress"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// errUnhealthy is said by the table already; only the exit code is missing.
var errUnhealthy = errors.New("the cluster is not healthy")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := root().ExecuteContext(ctx)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = errors.New("interrupted; run up again to go on, or down to remove what was made")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		stop()
		os.Exit(1)
	}
}

func root() *cobra.Command {
	directory := os.Getenv("CLUSTER_DIR")
	if directory == "" {
		directory = state.DefaultDir
	}
	command := &cobra.Command{
		Use:           "cluster",
		Short:         "A real one-node Kubernetes cluster from Go modules, on a plain Linux machine",
		SilenceUsage:  true,
		SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{
			DisableDefaultCmd: true,
		},
	}
	command.PersistentFlags().StringVar(&directory, "dir", directory, "state directory (or the variable CLUSTER_DIR)")
	// The directory is known once flags are parsed.
	with := func(run func(*cobra.Command, lifecycle.Cluster, []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			dir, err := state.At(directory)
			if err != nil {
				return err
			}
			return run(cmd, lifecycle.Cluster{Dir: dir, Report: progress.New(os.Stderr)}, args)
		}
	}
	command.AddCommand(up(with), down(with), status(with), load(with), kubeconfig(with), binary(), image(), layout(), push())
	command.AddCommand(faults(with)...)
	return command
}

type runner func(func(*cobra.Command, lifecycle.Cluster, []string) error) func(*cobra.Command, []string) error

func up(with runner) *cobra.Command {
	var certificate, family string
	command := &cobra.Command{
		Use:   "up",
		Short: "Build what is missing and bring the cluster up, or repair it (needs root)",
		Args:  cobra.NoArgs,
		RunE: with(func(cmd *cobra.Command, c lifecycle.Cluster, _ []string) error {
			chosen := state.KubeletCertificate(certificate)
			switch chosen {
			case "", state.SignedByCluster, state.SelfSigned:
			default:
				return fmt.Errorf("--kubelet-certificate=%s: must be %s or %s", certificate, state.SignedByCluster, state.SelfSigned)
			}
			addresses := state.IPFamily(family)
			switch addresses {
			case "", state.IPv4, state.IPv6:
			default:
				return fmt.Errorf("--ip-family=%s: must be %s or %s", family, state.IPv4, state.IPv6)
			}
			return c.Up(cmd.Context(), lifecycle.Options{Kubernetes: kubernetesVersion(), KubeletCertificate: chosen, IPFamily: addresses})
		}),
	}
	command.Flags().StringVar(&certificate, "kubelet-certificate", "",
		"who signs the kubelet's certificate: signed (by the cluster's CA, for a new cluster) or self-signed (as kubeadm and kind leave it); without it, as it is")
	command.Flags().StringVar(&family, "ip-family", "", "of all addresses of a new cluster: IPv4 (the default) or IPv6")
	return command
}

// kubernetesVersion returns that of KUBERNETES_VERSION, or of go.mod. It is a variable rather than a flag, so that
// scripts which build for a cluster, and those that they call, mean the same.
func kubernetesVersion() string {
	return cmp.Or(os.Getenv("KUBERNETES_VERSION"), binaries.KubernetesVersion)
}

func down(with runner) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster and remove everything of it, also what a killed run left (needs root)",
		Args:  cobra.NoArgs,
		RunE: with(func(cmd *cobra.Command, c lifecycle.Cluster, _ []string) error {
			return c.Down(cmd.Context())
		}),
	}
}

func status(with runner) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the components and the node; exit with 1 when something is not healthy (needs root)",
		Args:  cobra.NoArgs,
		RunE: with(func(cmd *cobra.Command, c lifecycle.Cluster, _ []string) error {
			healthy, err := c.Status(cmd.Context(), cmd.OutOrStdout())
			if err == nil && !healthy {
				err = errUnhealthy
			}
			return err
		}),
	}
}

func load(with runner) *cobra.Command {
	return &cobra.Command{
		Use:   "load ARCHIVE...",
		Short: "Load image archives into the cluster, or into the kind or minikube cluster of KUBECONFIG",
		Args:  cobra.MinimumNArgs(1),
		RunE: with(func(cmd *cobra.Command, c lifecycle.Cluster, archives []string) error {
			return c.Load(cmd.Context(), os.Getenv("KUBECONFIG"), archives)
		}),
	}
}

func kubeconfig(with runner) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Args:  cobra.NoArgs,
		RunE: with(func(cmd *cobra.Command, c lifecycle.Cluster, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), c.Dir.Kubeconfig())
			return err
		}),
	}
}

func binary() *cobra.Command {
	var timeout time.Duration
	command := &cobra.Command{
		Use:       "binaries [NAME...]",
		Short:     "Build the binaries that are missing, and print their folder",
		ValidArgs: binaries.Names(),
		RunE: func(cmd *cobra.Command, names []string) error {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("not built within %s", timeout))
			defer cancel()
			folder, err := binaries.Build(ctx, progress.New(os.Stderr), kubernetesVersion(), names...)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), folder)
			return err
		},
	}
	command.Flags().DurationVar(&timeout, "timeout", 2*time.Hour, "how long the build may take")
	return command
}

func image() *cobra.Command {
	var (
		spec     images.Spec
		programs []string
		out      string
	)
	command := &cobra.Command{
		Use:   "image --tag NAME:TAG --binary PATH[=/IN/IMAGE] --out FILE",
		Short: "Make an image of binaries on an empty base, without an engine",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var err error
			if spec.Binaries, err = images.ParseBinaries(programs); err != nil {
				return err
			}
			// Absolute, since `go -C` writes a relative one where the user may not look for it.
			target, err := filepath.Abs(out)
			if err != nil {
				return err
			}
			if err := images.Write(spec, target); err != nil {
				return err
			}
			progress.New(os.Stderr).Say("image", "%s written to %s", spec.Tag, target)
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&spec.Tag, "tag", "", "the image's name, NAME:TAG")
	flags.StringArrayVar(&programs, "binary", nil, "a program and its place in the image; the first is the entrypoint")
	flags.StringVar(&out, "out", "", "the archive to write")
	flags.StringVar(&spec.User, "user", "65532:65532", "the numeric user, or USER:GROUP")
	flags.StringArrayVar(&spec.Arguments, "arg", nil, "an argument after the entrypoint, may be repeated")
	for _, required := range []string{"tag", "binary", "out"} {
		// It fails only for a flag that does not exist.
		cobra.CheckErr(command.MarkFlagRequired(required))
	}
	return command
}

func layout() *cobra.Command {
	var (
		spec     images.Spec
		programs []string
		out      string
	)
	command := &cobra.Command{
		Use:   "layout --tag NAME:TAG --binary PATH=/IN/IMAGE [--binary …] --out FOLDER",
		Short: "Make an OCI layout of a program's builds for several architectures",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			builds, err := images.ParseBinaries(programs)
			if err != nil {
				return err
			}
			target, err := filepath.Abs(out)
			if err != nil {
				return err
			}
			return images.WriteLayout(spec, builds, target)
		},
	}
	flags := command.Flags()
	flags.StringVar(&spec.Tag, "tag", "", "the image's name, NAME:TAG")
	flags.StringArrayVar(&programs, "binary", nil, "a build of the program, and its place in the image")
	flags.StringVar(&out, "out", "", "the folder to write")
	flags.StringVar(&spec.User, "user", "65532:65532", "the numeric user, or USER:GROUP")
	flags.StringToStringVar(&spec.Labels, "label", nil, "a label of the image, KEY=VALUE, may be repeated")
	for _, required := range []string{"tag", "binary", "out"} {
		cobra.CheckErr(command.MarkFlagRequired(required))
	}
	return command
}

func push() *cobra.Command {
	return &cobra.Command{
		Use:   "push LAYOUT",
		Short: "Push the image in an OCI layout to the registry in its name, and print its name by digest",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pushed, err := images.Push(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), pushed)
			return err
		},
	}
}

// faults are the commands that break and mend one component.
func faults(with runner) []*cobra.Command {
	var commands []*cobra.Command
	for _, fault := range []struct {
		name, short string
		do          func(context.Context, lifecycle.Cluster, string) error
	}{
		{"stop", "Stop one component (SIGTERM)", func(ctx context.Context, c lifecycle.Cluster, name string) error {
			return c.Stop(ctx, name)
		}},
		{"kill", "Kill one component (SIGKILL)", func(ctx context.Context, c lifecycle.Cluster, name string) error {
			return c.Kill(ctx, name)
		}},
		{"start", "Start one component and wait until it is healthy", func(ctx context.Context, c lifecycle.Cluster, name string) error {
			return c.Start(ctx, name)
		}},
		{"restart", "Stop and start one component", func(ctx context.Context, c lifecycle.Cluster, name string) error {
			return errors.Join(c.Stop(ctx, name), c.Start(ctx, name))
		}},
	} {
		commands = append(commands, &cobra.Command{
			Use:   fault.name + " COMPONENT",
			Short: fault.short + " (needs root)",
			Args:  cobra.ExactArgs(1),
			RunE: with(func(cmd *cobra.Command, c lifecycle.Cluster, args []string) error {
				return fault.do(cmd.Context(), c, args[0])
			}),
		})
	}
	return commands
}
