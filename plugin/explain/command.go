// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain is `kubectl metrics-backend explain`: it shows how the values of a custom or
// external metric are evaluated.
package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

const long = `Shows how the values of a custom or external metric come about: the rule or the object
that defines it, the query that the source is asked, what it answers, and the values
that clients get of it, or why there are none.

It asks at the metric's own path, as an autoscaler does: you see what you may read.
Without --for it looks in discovery for what has a metric of that name: objects in the
namespace, and external metrics. If nothing has, it asks for that of pods and the external
one: the answer names rules and declared metrics that cannot be used.

What cannot be asked is an error on the error stream, after the others.

Exit codes: 0 there are values, 1 what could be asked has none, 2 nothing could be asked.`

const example = `  # All pods of the namespace, and external metrics of that name
  kubectl metrics-backend explain hits_per_second -n shop

  # What an autoscaler with a metric of type Pods asks, and one of type Object
  kubectl metrics-backend explain hits_per_second -n shop --for pods -l app=cart
  kubectl metrics-backend explain latency -n shop --for ingresses.networking.k8s.io/main

  # An external metric, by its labels
  kubectl metrics-backend explain queue_depth -n shop --external -l queue=mail`

// options are the command line's.
type options struct {
	metric         string
	namespace      string
	of             string
	external       bool
	selector       string
	metricSelector string
	format         output.Format
}

// NewCommand returns `kubectl metrics-backend explain`.
func NewCommand(flags genericclioptions.RESTClientGetter, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:               "explain NAME",
		Short:             "Explain how the values of a custom or external metric are computed",
		Long:              long,
		Example:           example,
		Args:              oneMetric,
		ValidArgsFunction: connection.Complete(flags, completeMetric),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.metric = args[0]
			if err := o.complete(flags); err != nil {
				return err
			}
			cluster, err := connection.Open(flags, streams.ErrOut)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), cluster, streams)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the objects, or in which an external metric is read; the kubeconfig's by default.")
	f.StringVar(&o.of, "for", "", "Described objects: RESOURCE or RESOURCE/NAME, plural, with their group where it is not core's.")
	f.BoolVar(&o.external, "external", false, "The external metric of that name.")
	f.StringVarP(&o.selector, "selector", "l", "", "Label selector of the described objects; of an external metric, of the values. Without --for and --external it is both.")
	f.StringVar(&o.metricSelector, "metric-selector", "", "Label selector of the metric's series, as in an autoscaler's metric.selector.")
	o.format.AddFlag(cmd)
	connection.CompleteNamespace(cmd, flags)
	return cmd
}

// completeMetric returns the names of metrics in discovery.
func completeMetric(ctx context.Context, cluster *connection.Cluster, args []string) ([]string, error) {
	if len(args) > 0 {
		return nil, nil
	}
	names := sets.New[string]()
	for name := range versions {
		api, err := discover(ctx, cluster, name)
		if err != nil {
			continue // the other one can be asked
		}
		for _, r := range api.resources {
			_, metric, object := strings.Cut(r.Name, "/")
			if !object {
				metric = r.Name
			}
			names.Insert(metric)
		}
	}
	return sets.List(names), nil
}

func oneMetric(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name one metric; there are %d", len(args))
	}
	return nil
}

// complete validates the flags and sets the namespace.
func (o *options) complete(flags genericclioptions.RESTClientGetter) error {
	resource, name, named := strings.Cut(o.of, "/")
	switch {
	case o.of != "" && (resource == "" || named && (name == "" || strings.Contains(name, "/"))):
		return fmt.Errorf("--for %q: must be RESOURCE or RESOURCE/NAME, such as pods or ingresses.networking.k8s.io/main", o.of)
	case o.external && o.of != "":
		return errors.New("an external metric describes no object: leave out --for, or --external")
	case strings.Contains(o.of, "/") && o.selector != "":
		return errors.New("--for names one object, and --selector selects among several: leave out the name, or --selector")
	case o.external && o.metricSelector != "":
		return errors.New("the values of an external metric are selected by --selector: leave out --metric-selector")
	}
	for flag, selector := range map[string]string{"--selector": o.selector, "--metric-selector": o.metricSelector} {
		if _, err := labels.Parse(selector); err != nil {
			return fmt.Errorf("%s %q: %w", flag, selector, err)
		}
	}
	if err := o.format.Validate(); err != nil {
		return err
	}
	if o.namespace == "" {
		var err error
		if o.namespace, err = connection.Namespace(flags); err != nil {
			return err
		}
	}
	if resource == "namespaces" && named && name != o.namespace {
		return fmt.Errorf("--for %q: an autoscaler reads only metrics of its own namespace, which is %s here: add -n %s", o.of, o.namespace, name)
	}
	return nil
}

// Explained is the explanation of a metric.
type Explained struct {
	// Path is the path by which clients read the values.
	Path string `json:"path"`
	v1alpha1.MetricExplanation

	title string
}

// run prints the explanations, then the errors of the targets that failed.
func (o *options) run(ctx context.Context, cluster *connection.Cluster, streams genericiooptions.IOStreams) error {
	targets, errs := o.targets(ctx, cluster)
	var all []Explained
	for _, t := range targets {
		explained, err := explainTarget(ctx, cluster, t)
		if err != nil {
			errs = append(errs, err)
		} else {
			all = append(all, *explained)
		}
		if ctx.Err() != nil {
			break // all others would say the same
		}
	}
	if len(all) == 0 {
		return errors.Join(errs...)
	}
	now := cluster.Now()
	var trees []*output.Node
	for i := range all {
		trees = append(trees, all[i].tree(now))
	}
	if err := o.format.Print(streams.Out, all, trees...); err != nil {
		return err
	}
	// Programs read the output, so errors are on the error stream.
	for _, err := range slices.DeleteFunc(errs, func(err error) bool { return errors.As(err, new(undiscoveredError)) }) {
		for line := range strings.Lines(err.Error()) {
			if _, err := fmt.Fprintln(streams.ErrOut, "error:", strings.TrimSpace(line)); err != nil {
				return err
			}
		}
	}
	if !slices.ContainsFunc(all, func(e Explained) bool { return e.ValueCount > 0 }) {
		return output.ErrNotMet
	}
	return nil
}

// explainTarget reads one explanation.
func explainTarget(ctx context.Context, cluster *connection.Cluster, t target) (*Explained, error) {
	query := url.Values{v1alpha1.ParameterExplain: {"true"}}
	for name, value := range t.query {
		if value != "" {
			query.Set(name, value)
		}
	}
	body, err := cluster.Get(ctx, t.path()+"?"+query.Encode(), "application/json")
	if err != nil {
		return nil, fmt.Errorf("explain %s: %w", t.title, err)
	}
	explained := &Explained{Path: t.path(), title: t.title}
	if err := json.Unmarshal(body, &explained.MetricExplanation); err != nil {
		return nil, fmt.Errorf("read the explanation of %s: %w", t.title, err)
	}
	if explained.Kind != v1alpha1.KindMetricExplanation {
		return nil, fmt.Errorf("%s is served by an implementation that does not explain: it answered a %s; is it this operator's? kubectl metrics-backend status tells", t.title, explained.Kind)
	}
	return explained, nil
}
