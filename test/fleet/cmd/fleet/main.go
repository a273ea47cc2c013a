// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command fleet runs thousands of fake kubelets, with or without the Node and Pod
// objects that go with them in an API server. See test/fleet/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

type flags struct {
	fleet.Options
	swap, authorityFile, authorityKey string

	kubeconfig, caFile, control string
	concurrency                 int
	duration                    time.Duration
	keep                        bool
	churn                       fleet.Churn
	churnEvery                  time.Duration
}

func parse(arguments []string) (flags, error) {
	var f flags
	set := pflag.NewFlagSet("fleet", pflag.ContinueOnError)
	set.SortFlags = false
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "write Node and Pod objects to this cluster, and delete them at the end; empty: serve only")
	set.IntVar(&f.Nodes, "nodes", 1000, "number of nodes")
	set.IntVar(&f.PodsPerNode, "pods-per-node", 30, "pods on each node at first; -1 for none")
	set.IntVar(&f.ContainersPerPod, "containers-per-pod", 2, "containers in each pod")
	set.IntVar(&f.Namespaces, "namespaces", 10, "namespaces that the pods are spread over")
	set.DurationVar(&f.Period, "period", 10*time.Second, "housekeeping period: node samples are renewed this often, container samples after one to two periods")
	set.Uint64Var(&f.Seed, "seed", 1, "decides every name, value and phase")
	set.StringVar(&f.swap, "swap", string(fleet.SwapIdle), "swap series: idle (all 0), used, or absent")
	set.StringVar(&f.Name, "name", "fleet", "name of the fleet: label, and prefix of nodes and namespaces")
	set.StringVar(&f.IP, "ip", "127.0.0.1", "address that all kubelets listen on, each on its own port")
	set.BoolVar(&f.IPPerNode, "ip-per-node", false, "give each node its own address in 127.64.0.0/10 instead")
	set.StringVar(&f.MetricsPath, "metrics-path", "/metrics/resource", "where kubelets answer; another path is announced by annotation")
	set.StringVar(&f.Token, "token", "", "the only bearer token accepted; empty: any")
	set.StringVar(&f.caFile, "ca-file", "", "write the CA that signed the kubelets' certificates to this file")
	set.StringVar(&f.authorityFile, "signing-ca-file", "", "sign the kubelets' certificates with this CA; empty: a new one")
	set.StringVar(&f.authorityKey, "signing-ca-key", "", "key of --signing-ca-file")
	set.StringVar(&f.control, "control", "127.0.0.1:0", "loopback address of the control endpoint (/faults, /churn, /stats); empty: none")
	set.IntVar(&f.churn.Restart, "churn-restart", 0, "pods to restart in each round of churn")
	set.IntVar(&f.churn.Move, "churn-move", 0, "pods to move to another node in each round of churn")
	set.IntVar(&f.churn.Replace, "churn-replace", 0, "pods to replace by new ones in each round of churn")
	set.DurationVar(&f.churnEvery, "churn-every", time.Minute, "time between rounds of churn")
	set.IntVar(&f.concurrency, "concurrency", 32, "requests in flight to the API server")
	set.DurationVar(&f.duration, "duration", 0, "stop after this time, counted from when the kubelets listen; 0: when interrupted")
	set.BoolVar(&f.keep, "keep", false, "leave the objects in the cluster at the end")
	if err := set.Parse(arguments); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("unexpected argument %q: fleet takes flags only", set.Arg(0))
	}
	f.Swap = fleet.Swap(f.swap)
	if f.churnEvery <= 0 {
		return f, errors.New("--churn-every must be positive")
	}
	if f.authorityFile != "" {
		var err error
		if f.Authority, err = fleet.LoadAuthority(f.authorityFile, f.authorityKey); err != nil {
			return f, err
		}
	}
	return f, nil
}

func main() {
	f, err := parse(os.Args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop) // a second signal ends the process at once
		err = run(ctx, f, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// run serves until the context or the duration ends, and cleans up.
func run(ctx context.Context, f flags, out io.Writer) error {
	kubelets, err := fleet.New(f.Options)
	if err != nil {
		return err
	}
	// The kubelets outlive ctx until their objects are gone.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer kubelets.Wait()
	defer stop()
	if err := kubelets.Start(serving); err != nil {
		return err
	}
	if f.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.duration)
		defer cancel()
	}
	if f.caFile != "" {
		if err := os.WriteFile(f.caFile, kubelets.Authority().PEM, 0o644); err != nil {
			return fmt.Errorf("writing the CA: %w", err)
		}
	}
	r := newReporter(out, kubelets)
	first := kubelets.Nodes()[0]
	r.line("%d kubelets listen, the first at https://%s%s", len(kubelets.Nodes()), first.Address(), f.MetricsPath)

	var writer *fleet.Writer
	if f.kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
		if err != nil {
			return fmt.Errorf("reading the kubeconfig: %w", err)
		}
		client, err := fleet.NewClient(config)
		if err != nil {
			return err
		}
		writer = fleet.NewWriter(client, kubelets, f.concurrency)
		if !f.keep {
			defer cleanUp(context.WithoutCancel(ctx), r, writer)
		}
		if err := r.follow("written", writer, func() error { return writer.Sync(ctx) }); err != nil {
			if ctx.Err() != nil {
				return nil // told to stop meanwhile
			}
			return fmt.Errorf("writing the fleet's objects to %s: %w", config.Host, err)
		}
	}
	changes := make(chan []fleet.Change, 16)
	if f.control != "" {
		address, err := control(serving, f.control, kubelets.ControlHandler(func(c []fleet.Change) { changes <- c }))
		if err != nil {
			return err
		}
		r.line("control endpoint: http://%s/faults", address)
	}
	return attend(ctx, f, kubelets, writer, r, changes)
}

// attend reports each second, makes the churn, and brings it to the API server.
func attend(ctx context.Context, f flags, kubelets *fleet.Fleet, writer *fleet.Writer, r *reporter, changes <-chan []fleet.Change) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	round := time.NewTicker(f.churnEvery)
	defer round.Stop()
	for {
		var changed []fleet.Change
		select {
		case <-ctx.Done():
			return nil
		case <-second.C:
			r.stats()
		case changed = <-changes:
		case <-round.C:
			if f.churn == (fleet.Churn{}) {
				continue
			}
			var err error
			if changed, err = kubelets.Churn(f.churn); err != nil {
				return err
			}
		}
		if len(changed) == 0 {
			continue
		}
		r.line("churn: %d changes", len(changed))
		if writer == nil {
			continue
		}
		if err := writer.Apply(ctx, changed); err != nil && ctx.Err() == nil {
			return fmt.Errorf("writing churn: %w", err)
		}
	}
}

// cleanUp takes the time it needs; a second signal ends it.
func cleanUp(ctx context.Context, r *reporter, writer *fleet.Writer) {
	if err := r.follow("deleted", writer, func() error { return writer.Cleanup(ctx) }); err != nil {
		r.line("not all objects are deleted; the next run deletes them, or: kubectl delete nodes,namespaces -l %s: %v", writer.Selector(), err)
		return
	}
	r.line("the fleet's objects are deleted")
}

// control serves the handler on loopback until the context ends.
func control(ctx context.Context, address string, handler http.Handler) (net.Addr, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for the control endpoint: %w", err)
	}
	if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		_ = l.Close()
		return nil, fmt.Errorf("control endpoint at %s: it has no authentication, so it must be on loopback", address)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return l.Addr(), nil
}
