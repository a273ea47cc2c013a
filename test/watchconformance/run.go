// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Options of a run. The zero value is a good one for a cluster whose metrics are
// renewed each 15 s.
type Options struct {
	// Patience is how long what is due at once may take, here, over this network.
	// KEP-1013 gives the first data point a second. Default 5 s.
	Patience time.Duration
	// PointInterval is how often an object has a new data point. Default 15 s.
	PointInterval time.Duration
	// BookmarkInterval is the longest between two bookmarks. Default 1 min.
	BookmarkInterval time.Duration
	// Watches is how many are opened at once in the check of many, on each
	// resource of each version in turn. Default 50.
	Watches int
	// Parallel is how many checks run at once. Default 32.
	Parallel int
	// Limit is how many watches the server admits; 0 to leave that alone. It takes
	// all places that are free, for a moment.
	Limit int
	// Pods makes pods to change; nil to only read.
	Pods Pods
	// Only are the names of the checks to run; nil for all.
	Only *regexp.Regexp
}

func (o Options) complete() Options {
	setDefault(&o.Patience, 5*time.Second)
	setDefault(&o.PointInterval, 15*time.Second)
	setDefault(&o.BookmarkInterval, time.Minute)
	setDefault(&o.Watches, 50)
	setDefault(&o.Parallel, 32)
	return o
}

func setDefault[T time.Duration | int](value *T, otherwise T) {
	if *value == 0 {
		*value = otherwise
	}
}

// moment is what checks wait of their own accord, however patient they are.
func (o Options) moment() time.Duration { return min(o.Patience, 5*time.Second) }

// shortTimeout is a timeoutSeconds whose end is worth waiting for.
func (o Options) shortTimeout() time.Duration {
	return max(2*time.Second, o.moment()).Truncate(time.Second)
}

// longest is how long a check may take.
func (o Options) longest() time.Duration {
	return max(8*o.PointInterval, o.BookmarkInterval) + 4*o.Patience
}

// Run checks the API at a server. It returns an error only if it cannot begin.
func Run(ctx context.Context, config *rest.Config, api API, options Options) (*Report, error) {
	options = options.complete()
	c, err := newConnection(config)
	if err != nil {
		return nil, err
	}
	report := &Report{Group: api.Group, Server: c.base.String(), began: time.Now()}
	targets, err := discover(ctx, c, api)
	if err != nil {
		return nil, err
	}
	ledger, created := newLedger(), &newObjects{}
	for _, t := range targets {
		t.config, t.connection, t.options, t.ledger, t.newObjects = config, c, options, ledger, created
		t.recorded = once(t.record)
		report.Served = report.Served || t.served
		if !slices.Contains(report.Versions, t.version) {
			report.Versions = append(report.Versions, t.version)
		}
	}
	for _, t := range targets {
		// What becomes of lists, checks say.
		if l, err := t.list(ctx, nil); err == nil {
			created.residents(t.resource.Name, l.objects)
		}
	}
	for phase := range phases {
		places := make(chan struct{}, options.Parallel)
		if phase == alone {
			places = make(chan struct{}, 1)
		}
		var running sync.WaitGroup
		for i := range catalogue {
			check := &catalogue[i]
			if check.phase != phase || options.Only != nil && !options.Only.MatchString(check.name) {
				continue
			}
			for _, t := range targets {
				if !check.applies(t) {
					continue
				}
				places <- struct{}{}
				running.Go(func() {
					defer func() { <-places }()
					report.add(check.judge(ctx, t))
				})
			}
		}
		running.Wait()
	}
	report.finish()
	return report, nil
}

func (c *check) applies(t *target) bool {
	return (!c.metadata || t.resource.Metadata) && (!c.namespaced || t.resource.Namespaced)
}

// judge runs a check.
func (c *check) judge(ctx context.Context, t *target) Result {
	r := Result{Check: c.name, Level: c.level, Line: c.line, Source: c.source, Version: t.version, Resource: t.resource.Name}
	if !t.served && !c.anyway {
		r.Outcome, r.Why = NotServed, "discovery does not name the watch verb"
		return r
	}
	if c.enabled != nil {
		if flag, ok := c.enabled(&t.options); !ok {
			r.Outcome, r.Why = NotAsked, flag+" asks for it"
			return r
		}
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, t.options.longest())
	defer cancel()
	why, err := c.run(ctx, t)
	r.Took = time.Since(began)
	switch {
	case err == nil:
		r.Outcome, r.Why = Passed, why
	case errors.Is(err, errUnseen):
		r.Outcome, r.Why = Unseen, strings.TrimPrefix(err.Error(), errUnseen.Error()+": ")
	default:
		r.Outcome, r.Why = Failed, err.Error()
	}
	return r
}

// once shares one call between all callers.
func once[T any](f func(context.Context) (T, error)) func(context.Context) (T, error) {
	var mu sync.Mutex
	var done bool
	var value T
	var err error
	return func(ctx context.Context) (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if !done {
			value, err = f(ctx)
			done = true
		}
		return value, err
	}
}

// discover finds the resources of each version of the group.
func discover(ctx context.Context, c *connection, api API) ([]*target, error) {
	var group metav1.APIGroup
	if err := c.getJSON(ctx, "/apis/"+api.Group, &group); err != nil {
		return nil, fmt.Errorf("discover %s at %s: %w", api.Group, c.base, err)
	}
	var targets []*target
	for _, version := range group.Versions {
		var resources metav1.APIResourceList
		path := "/apis/" + version.GroupVersion
		if err := c.getJSON(ctx, path, &resources); err != nil {
			return nil, fmt.Errorf("discovery lists %s, which does not answer: %w", version.GroupVersion, err)
		}
		for _, resource := range api.Resources {
			i := slices.IndexFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Name })
			if i < 0 {
				continue
			}
			served := slices.Contains(resources.APIResources[i].Verbs, "watch")
			targets = append(targets, &target{api: api, resource: resource, version: version.Version, served: served})
		}
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("discovery of %s at %s names none of the resources under test", api.Group, c.base)
	}
	return targets, nil
}
