// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package top is `kubectl metrics-backend top`: the usage of nodes or pods, once, or as a table that a
// watch updates.
//
// Changes from the client become samples (source.go), which a table keeps with their history
// (table.go). A frame is a pure function of the table, the terminal's size and the time
// (frame.go, columns.go). Without a terminal each change is a line (print.go).
package top

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/client"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

const long = `Shows the CPU and memory of nodes or pods, as kubectl top does, or with --watch as a
table that lives: each data point appears as it arrives, with a history of each row.
A history is on the row's own scale, from zero to the highest value that it shows.

It watches metrics.k8s.io where watch is served, and polls with any other
implementation; the second line says which, and why.

Keys: c, m and n sort by CPU, memory and name; arrows, page keys, Home and End scroll;
q or Ctrl-C quits. Where the output is no terminal, each data point is a line.`

const example = `  kubectl metrics-backend top nodes
  kubectl metrics-backend top pods --watch --sort-by=cpu
  kubectl metrics-backend top pods -A -l app=cart --containers
  kubectl metrics-backend top pods --resources --sum
  kubectl metrics-backend top pods --watch | tee usage.log`

// options are the command line's.
type options struct {
	nodes         bool
	name          string
	namespace     string
	allNamespaces bool
	selector      string
	fields        string
	sortBy        string
	containers    bool
	noHeaders     bool
	sum           bool
	resources     bool
	format        output.Format
	watch         bool
	interval      time.Duration
	maxAge        time.Duration
}

// NewCommand returns `kubectl metrics-backend top`.
func NewCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{interval: 15 * time.Second, maxAge: 90 * time.Second}
	cmd := &cobra.Command{
		Use:     "top [nodes|pods] [NAME]",
		Short:   "Display resource (CPU/memory) usage of nodes or pods, once or live",
		Long:    long,
		Example: example,
		Args:    cobra.MaximumNArgs(2),
		ValidArgsFunction: connection.Complete(flags, func(ctx context.Context, cluster *connection.Cluster, args []string) ([]string, error) {
			return o.completeArgument(ctx, flags, cluster, args)
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(args, flags); err != nil {
				return err
			}
			cluster, err := connection.Open(flags, streams.ErrOut)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), cluster, streams, os.Getenv)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the pods; the kubeconfig's by default.")
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Pods of all namespaces.")
	f.StringVarP(&o.selector, "selector", "l", "", "Label selector, such as app=cart.")
	f.StringVar(&o.fields, "field-selector", "", "Field selector, by metadata.name or metadata.namespace.")
	f.StringVar(&o.sortBy, "sort-by", "name", "Order of rows: name, cpu or memory, the highest first.")
	f.BoolVar(&o.containers, "containers", false, "A row for each container of a pod.")
	f.BoolVar(&o.noHeaders, "no-headers", false, "No column heads.")
	f.BoolVar(&o.sum, "sum", false, "A row with the sum of all, at the end.")
	f.BoolVar(&o.resources, "resources", false, "Requests and limits of pods beside their usage; needs the permission to list pods.")
	o.format.AddFlag(cmd)
	f.BoolVarP(&o.watch, "watch", "w", false, "Go on, until you quit.")
	f.DurationVar(&o.interval, "poll-interval", o.interval, "With --watch, time between two lists where watch is not served.")
	f.DurationVar(&o.maxAge, "max-age", o.maxAge, "With --watch, how long a row stays without a new data point; at least three times the interval at which the implementation scrapes.")
	output.Complete(cmd, "sort-by", orders...)
	connection.CompleteNamespace(cmd, flags)
	return cmd
}

// orders are the values of --sort-by.
var orders = []string{string(byName), string(byCPU), string(byMemory)}

// completeArgument returns what can be the argument after args.
func (o *options) completeArgument(ctx context.Context, flags genericclioptions.RESTClientGetter, cluster *connection.Cluster, args []string) ([]string, error) {
	switch len(args) {
	case 0:
		return []string{"nodes", "pods"}, nil
	case 1:
	default:
		return nil, nil
	}
	if err := o.complete(args, flags); err != nil {
		return nil, err
	}
	kind := "Pod"
	if o.nodes {
		kind = "Node"
	}
	return cluster.ListNames(ctx, corev1.SchemeGroupVersion.WithKind(kind), o.namespace)
}

// complete reads the arguments, validates the flags and sets the namespace.
func (o *options) complete(args []string, flags genericclioptions.RESTClientGetter) error {
	what := "pods"
	if len(args) > 0 {
		what = args[0]
	}
	switch what {
	case "nodes", "node", "no":
		o.nodes = true
	case "pods", "pod", "po":
	default:
		return fmt.Errorf("%q: there are metrics of nodes and of pods only", what)
	}
	if len(args) > 1 {
		o.name = args[1]
	}
	if !slices.Contains(orders, o.sortBy) {
		return fmt.Errorf("--sort-by %q: must be name, cpu or memory", o.sortBy)
	}
	if err := o.format.Validate(); err != nil {
		return err
	}
	switch {
	case o.watch && (o.sum || o.resources || o.format != "text"):
		return errors.New("--sum, --resources and --output are for what is printed once: leave out --watch")
	case o.sum && o.format != "text":
		return errors.New("--sum is a row of the text: leave out --sum, or --output")
	case o.nodes && o.resources:
		return errors.New("--resources is of pods: nodes have what is allocatable, which the percentages are of")
	case o.interval < time.Second || o.maxAge < time.Second:
		return fmt.Errorf("--poll-interval %s, --max-age %s: give at least 1s", o.interval, o.maxAge)
	case o.interval+o.interval/2 >= o.maxAge:
		return fmt.Errorf("--poll-interval %s, --max-age %s: rows would go before the next list brings them anew; "+
			"give a --max-age of more than one and a half times --poll-interval", o.interval, o.maxAge)
	case o.nodes && (o.containers || o.allNamespaces || o.namespace != ""):
		return errors.New("--containers, --namespace and --all-namespaces are of pods; nodes have neither")
	case o.name != "" && (o.selector != "" || o.fields != ""):
		return errors.New("give a NAME or a selector, not both")
	case o.name != "" && o.allNamespaces:
		return errors.New("a pod's NAME is of one namespace: leave out --all-namespaces")
	case o.allNamespaces && o.namespace != "":
		return errors.New("--namespace and --all-namespaces exclude each other")
	}
	if o.name != "" {
		o.fields = fields.OneTermEqualSelector("metadata.name", o.name).String()
	}
	if o.nodes || o.allNamespaces || o.namespace != "" {
		return nil
	}
	var err error
	o.namespace, err = connection.Namespace(flags)
	return err
}

func (o *options) source(cluster *connection.Cluster) (*source, error) {
	settings := client.Options{
		LabelSelector: o.selector, FieldSelector: o.fields, PollInterval: o.interval, MaxAge: o.maxAge,
		RequestTimeout: max(cluster.Timeout, time.Second),
	}
	if o.nodes {
		nodes, err := client.Nodes(cluster.Config, settings)
		if err != nil {
			return nil, err
		}
		return newSource(nodes, nodeSamples), nil
	}
	pods, err := client.Pods(cluster.Config, o.namespace, settings)
	if err != nil {
		return nil, err
	}
	if o.containers {
		return newSource(pods, containerSamples), nil
	}
	return newSource(pods, podSamples), nil
}

// title returns the heading of the table.
func (o *options) title() string {
	parts := []string{"nodes", o.selector, o.fields}
	switch {
	case o.nodes:
	case o.allNamespaces:
		parts[0] = "pods in all namespaces"
	default:
		parts[0] = "pods in namespace " + o.namespace
	}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ", ")
}

func (o *options) run(ctx context.Context, cluster *connection.Cluster, streams genericiooptions.IOStreams, getenv func(string) string) error {
	if !klog.V(1).Enabled() { // what the client logs is in the notice
		ctx = klog.NewContext(ctx, logr.Discard())
	}
	s, err := o.source(cluster)
	if err != nil {
		return err
	}
	if err := s.sync(ctx); err != nil {
		return o.explain(err)
	}
	v := &view{
		title: o.title(), by: order(o.sortBy), namespaces: o.allNamespaces, containers: o.containers, percentages: o.nodes,
		noHeaders: o.noHeaders, sum: o.sum, symbols: symbolsFor(getenv), table: newTable(), stale: o.maxAge * 2 / 3,
	}
	nodes := &nodeLister{cluster: cluster, labels: o.selector, fields: o.fields, requests: make(chan struct{}, 1), out: make(chan nodeList)}
	if o.nodes {
		found := nodes.list(ctx)
		v.available, v.notice.problem = found.available, found.problem
	}
	if o.resources {
		if v.resources, err = o.readResources(ctx, cluster); err != nil {
			return err
		}
	}
	if !o.watch {
		return o.once(v, s, streams)
	}

	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	background.Go(func() { _ = s.run(ctx) }) // fails only if it was run before
	if o.nodes {
		background.Go(func() { nodes.run(ctx) })
	}
	fd, isTerminal := output.Terminal(streams.Out)
	if !isTerminal || getenv("TERM") == "dumb" { // a dumb one cannot be drawn on
		l := &lines{view: v, out: streams.Out, err: streams.ErrOut, now: cluster.Now}
		return l.follow(ctx, s, o.interval)
	}
	shown, err := openScreen(streams, fd)
	if err != nil {
		return err
	}
	defer shown.close()
	l := &live{view: v, source: s, screen: shown, nodes: nodes, interval: o.interval, now: cluster.Now}
	return l.run(ctx)
}

func (o *options) once(v *view, s *source, streams genericiooptions.IOStreams) error {
	for _, c := range s.snapshot() {
		v.table.apply(c)
	}
	if v.notice.problem != "" {
		if _, err := fmt.Fprintln(streams.ErrOut, v.notice.problem); err != nil {
			return err
		}
	}
	if o.name != "" && len(v.table.rows) == 0 {
		return fmt.Errorf("there are no metrics of %s: does it exist, and run for two scrapes already?", o.title())
	}
	if o.format != "text" {
		return v.printObjects(streams.Out, o.format)
	}
	if len(v.table.rows) == 0 && len(v.available) == 0 {
		_, err := fmt.Fprintf(streams.ErrOut, "There are no metrics of %s.\n", o.title())
		return err
	}
	return v.printOnce(streams.Out)
}

// explain adds a remedy to an error.
func (o *options) explain(err error) error {
	what := "pods"
	if o.nodes {
		what = "nodes"
	}
	switch {
	case errors.Is(err, client.ErrNotServed):
		return fmt.Errorf("%w (apply a MetricsBackend, or install another implementation such as metrics-server; "+
			"`kubectl metrics-backend status` shows what is registered)", err)
	case apierrors.IsForbidden(err):
		where := ""
		if !o.nodes && o.namespace != "" {
			where = " in namespace " + o.namespace
		}
		return fmt.Errorf("%w (you need the permission to list and watch %s.metrics.k8s.io%s; the role view has it)", err, what, where)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w (your credentials are not accepted: renew them, or choose another --context)", err)
	case apierrors.IsServiceUnavailable(err):
		return fmt.Errorf("%w (the API is registered, and what serves it does not answer; `kubectl metrics-backend status` shows more)", err)
	}
	return err
}
