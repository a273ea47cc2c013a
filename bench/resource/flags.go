// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

// Kinds of contestants.
const (
	kindServing       = "serving"
	kindMetricsServer = "metrics-server"
	kindBare          = "bare"
)

// Parts that may be measured in the first round only.
const (
	onceBare = kindBare
	onceAges = "ages"
)

// API servers of the contestants.
const (
	apiserverReal   = "real"
	apiserverMemory = "memory"
	// mostPodsWritten is the number of pods up to which kube-apiserver is used. To write
	// more takes longer than to measure.
	mostPodsWritten = 60_000
)

type flags struct {
	scale                            string
	contestants                      []string
	serving                          []string
	metricsServer                    string
	nodes, podsPerNode, containers   int
	apiserver                        string
	interval                         time.Duration
	scenarios                        []string
	rounds, scenarioRounds           int
	repetitions                      int
	once                             []string
	settle, window, ages, sweepEvery time.Duration
	cpuProfile                       string
	document, plot                   string
	timeout                          time.Duration
}

// scales are defaults of flags.
var scales = map[string]map[string]string{
	"full": {},
	"small": {
		"nodes": "100", "rounds": "2", "repetitions": "7",
		"settle": "0s", "window": "15s", "ages": "15s", "once": onceBare + "," + onceAges,
		"document": "",
	},
}

func parse(arguments []string) (*flags, error) {
	f := &flags{}
	fs := pflag.NewFlagSet("resource", pflag.ContinueOnError)
	fs.StringVar(&f.scale, "scale", "full", "Defaults of the other flags: full, or small, which takes less than five minutes.")
	fs.StringSliceVar(&f.contestants, "contestants", []string{kindServing, kindMetricsServer, kindBare}, "What is measured: serving, metrics-server, and a bare reader of kubelets.")
	fs.StringArrayVar(&f.serving, "serving", []string{"../bin/serving"}, "Binary of the serving component, or NAME=PATH. May be repeated to compare several builds.")
	fs.StringVar(&f.metricsServer, "metrics-server", "", "Binary of metrics-server.")
	fs.IntVar(&f.nodes, "nodes", 1000, "Number of fake kubelets.")
	fs.IntVar(&f.podsPerNode, "pods-per-node", 30, "Pods of each.")
	fs.IntVar(&f.containers, "containers-per-pod", 2, "Containers of each pod.")
	fs.StringVar(&f.apiserver, "apiserver", "", "Where contestants read nodes and pods: real, kube-apiserver and etcd, or memory, a stand-in with the same objects. Default real, but memory with more than 60,000 pods.")
	fs.DurationVar(&f.interval, "interval", 15*time.Second, "How often a kubelet is scraped.")
	fs.StringSliceVar(&f.scenarios, "scenario", []string{healthy}, "How the kubelets answer: healthy, lognormal, failing-1, failing-10, hanging-1, hanging-10, slow-1, slow-10 (the percentage of the kubelets with that fault), or all. May be several.")
	fs.IntVar(&f.rounds, "rounds", 5, "How often each contestant is measured, with a new process each time.")
	fs.IntVar(&f.scenarioRounds, "scenario-rounds", 1, "The same for scenarios other than healthy.")
	fs.StringSliceVar(&f.once, "once", nil, "What is only measured in the first round: ages, bare.")
	fs.DurationVar(&f.settle, "settle", 30*time.Second, "Time between the first complete list and the measurement of CPU.")
	fs.DurationVar(&f.window, "window", time.Minute, "Length of the measurement of CPU, without requests.")
	fs.DurationVar(&f.ages, "ages", time.Minute, "How long the age of samples is measured, with a list of nodes and of a namespace's pods each 1.1 seconds.")
	fs.IntVar(&f.repetitions, "repetitions", 15, "How often each request is sent for its median, after the first one and one that only checks the response; GETs and lists of nodes ten times as often.")
	fs.DurationVar(&f.sweepEvery, "sweep", 250*time.Millisecond, "How often the bare reader reads the kubelets that are due.")
	fs.StringVar(&f.cpuProfile, "cpuprofile", "", "Folder for profiles of the CPU (20 seconds without requests) and of the heap of serving, taken after the last round. Empty for none.")
	fs.StringVar(&f.document, "document", "../docs/reference/performance.md", "Markdown file into which the tables of this scale are written, if metrics-server and one build of serving without a name are measured. Empty for none.")
	fs.StringVar(&f.plot, "plot", "../docs/reference/images/compared-with-metrics-server.png", "Where the picture in that file is written.")
	fs.DurationVar(&f.timeout, "timeout", 4*time.Hour, "When to give up.")
	if err := fs.Parse(arguments); err != nil {
		return nil, err
	}
	if err := progress.Scale(fs, f.scale, scales); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return f, f.validate()
}

func (f *flags) validate() error {
	switch {
	case f.nodes < 1 || f.podsPerNode < 1 || f.containers < 1 || f.rounds < 1 || f.scenarioRounds < 1 || f.repetitions < 1:
		return errors.New("counts must be positive")
	case f.apiserver != "" && f.apiserver != apiserverReal && f.apiserver != apiserverMemory:
		return fmt.Errorf("--apiserver %q: must be %s or %s", f.apiserver, apiserverReal, apiserverMemory)
	case f.interval < 10*time.Second:
		return errors.New("--interval must be at least 10s, as metrics-server requires")
	case f.window < time.Second || f.ages < time.Second || f.settle < 0:
		return errors.New("--window and --ages must be at least 1s, and --settle must not be negative")
	case f.sweepEvery < 10*time.Millisecond || f.sweepEvery > f.interval:
		return errors.New("--sweep must be between 10ms and --interval")
	case slices.Contains(f.contestants, kindMetricsServer) && f.metricsServer == "":
		return errors.New("--metrics-server is required to measure metrics-server (make bench builds it)")
	}
	for _, part := range f.once {
		if part != onceBare && part != onceAges {
			return fmt.Errorf("--once %q: must be %s or %s", part, onceAges, onceBare)
		}
	}
	if _, err := scenariosNamed(f.scenarios); err != nil {
		return err
	}
	_, err := f.field()
	return err
}

// standIn tells whether the API server is a stand-in.
func (f *flags) standIn() bool {
	if f.apiserver == "" {
		return f.nodes*f.podsPerNode > mostPodsWritten
	}
	return f.apiserver == apiserverMemory
}

// roundsOf returns the number of rounds of a scenario.
func (f *flags) roundsOf(s scenario) int {
	if s.name == healthy {
		return f.rounds
	}
	return f.scenarioRounds
}

// skips tells whether a part is left out of a round, counted from 0.
func (f *flags) skips(part string, round int) bool { return round > 0 && slices.Contains(f.once, part) }

// contestant is what one column of the table is about.
type contestant struct {
	// name is the head of the column.
	name string
	// kind is one of the constants above.
	kind string
	// binary is empty for the bare reader.
	binary string
}

// field returns the contestants: metrics-server first, to which the others are compared,
// and the bare reader last.
func (f *flags) field() ([]contestant, error) {
	var all []contestant
	for _, kind := range f.contestants {
		switch kind {
		case kindServing:
			for _, one := range f.serving {
				name, path, named := strings.Cut(one, "=")
				if !named {
					name, path = kindServing, one
				}
				all = append(all, contestant{name: name, kind: kindServing, binary: path})
			}
		case kindMetricsServer:
			all = append(all, contestant{name: kind, kind: kind, binary: f.metricsServer})
		case kindBare:
			all = append(all, contestant{name: kind, kind: kind})
		default:
			return nil, fmt.Errorf("--contestants %q: must be %s, %s or %s", kind, kindServing, kindMetricsServer, kindBare)
		}
	}
	names := map[string]bool{}
	for _, one := range all {
		if one.name == "" || names[one.name] {
			return nil, fmt.Errorf("contestant %q: each needs a different name; use --serving NAME=PATH", one.name)
		}
		names[one.name] = true
	}
	order := []string{kindMetricsServer, kindServing, kindBare}
	slices.SortStableFunc(all, func(a, b contestant) int {
		return cmp.Compare(slices.Index(order, a.kind), slices.Index(order, b.kind))
	})
	return all, nil
}

// Deadline returns the timeout of the load.
func (f *flags) Deadline() time.Duration { return f.timeout }
