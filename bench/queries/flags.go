// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

type flags struct {
	scale             string
	serving, adapter  string
	contestants       []string
	autoscalers       []int
	metrics, selected int
	pods              int
	interval          time.Duration
	intervals, rounds int
	document, plot    string
	timeout           time.Duration
	// usual says that the load is that of the tables in the document: each flag of it has its
	// default.
	usual bool
}

// scales are defaults of flags.
var scales = map[string]map[string]string{
	"full":  {},
	"small": {"autoscalers": "1000", "document": ""},
}

func parse(arguments []string) (*flags, error) {
	f := &flags{}
	fs := pflag.NewFlagSet("queries", pflag.ContinueOnError)
	fs.StringVar(&f.scale, "scale", "full", "Defaults of the other flags: full, or small, which measures 1,000 autoscalers only, in about three minutes.")
	fs.StringVar(&f.serving, "serving", "../bin/serving", "Binary of the serving component.")
	fs.StringVar(&f.adapter, "prometheus-adapter", "", "Binary of prometheus-adapter.")
	fs.StringSliceVar(&f.contestants, "contestants", []string{adapterDefaults, adapterRaised, servingName}, "What is measured: adapter, prometheus-adapter with the flags of its release; adapter-raised, with a raised limit of its requests to kube-apiserver; serving; routed, serving in front of adapter-raised, to which its routes lead.")
	fs.IntSliceVar(&f.autoscalers, "autoscalers", []int{10, 100, 1000}, "Numbers of autoscalers, each of which requests one metric with one selector.")
	fs.IntVar(&f.metrics, "metrics", 10, "Custom metrics, and external metrics.")
	fs.IntVar(&f.selected, "selections", 100, "Applications, whose pods a label selects, and queues of each external metric.")
	fs.IntVar(&f.pods, "pods", 10, "Pods of each application. Each has all custom metrics.")
	fs.DurationVar(&f.interval, "interval", 15*time.Second, "How often each autoscaler sends its request, and for how long serving shares a result.")
	fs.IntVar(&f.intervals, "intervals", 3, "How many intervals each measurement lasts, at least 2: all is counted from the second on.")
	fs.IntVar(&f.rounds, "rounds", 1, "How often everything is measured. The tables have the medians.")
	fs.StringVar(&f.document, "document", "../docs/reference/performance.md", "Markdown file into which the tables are written, if all contestants are measured with the default load. Empty for none.")
	fs.StringVar(&f.plot, "plot", "../docs/reference/images/compared-with-prometheus-adapter.png", "PNG into which the ratios are drawn, with the tables.")
	fs.DurationVar(&f.timeout, "timeout", time.Hour, "When to give up.")
	if err := fs.Parse(arguments); err != nil {
		return nil, err
	}
	if err := progress.Scale(fs, f.scale, scales); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	f.usual = true
	for _, name := range []string{"autoscalers", "metrics", "selections", "pods", "interval", "intervals"} {
		flag := fs.Lookup(name)
		f.usual = f.usual && flag.Value.String() == flag.DefValue
	}
	return f, f.validate()
}

func (f *flags) validate() error {
	positive := append([]int{f.metrics, f.selected, f.pods, f.rounds}, f.autoscalers...)
	switch {
	case len(f.autoscalers) == 0 || slices.Min(positive) < 1:
		return errors.New("counts must be positive")
	case f.intervals < 2:
		return errors.New("--intervals must be at least 2")
	case f.interval < time.Second:
		return errors.New("--interval must be at least 1s")
	}
	field, err := f.selectedContestants()
	if err != nil {
		return err
	}
	if f.adapter == "" && slices.ContainsFunc(field, func(c contestant) bool { return c.name != servingName }) {
		return errors.New("--prometheus-adapter is required to measure prometheus-adapter (make bench-queries builds it)")
	}
	return nil
}

// selectedContestants returns those of --contestants, in the order of their columns.
func (f *flags) selectedContestants() ([]contestant, error) {
	var all []contestant
	known := append(slices.Clone(contestants), routed)
	for _, one := range known {
		if slices.Contains(f.contestants, one.name) {
			all = append(all, one)
		}
	}
	for _, name := range f.contestants {
		if !slices.ContainsFunc(known, func(c contestant) bool { return c.name == name }) {
			return nil, fmt.Errorf("--contestants %q: must be %s, %s, %s or %s", name, adapterDefaults, adapterRaised, servingName, routedName)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("--contestants must not be empty")
	}
	return all, nil
}

// Deadline returns the timeout of the load.
func (f *flags) Deadline() time.Duration { return f.timeout }
