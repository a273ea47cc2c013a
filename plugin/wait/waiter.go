// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// pollInterval is for changes that no watch delivers: discovery, and broken watches.
const pollInterval = time.Second

// waiter waits for one goal.
type waiter struct {
	cluster *connection.Cluster
	streams genericiooptions.IOStreams
	clock   clock.Clock
	goal    goal
	args    []string
	// chosen is set once backend is: the name of the MetricsBackend, or empty if the goal
	// needs none.
	chosen  bool
	backend string
	timeout time.Duration
}

// errDeleted means that the goal can no longer be reached.
var errDeleted = errors.New("deleted meanwhile")

// run checks the goal after each change that the watch delivers, and prints what is missing
// whenever that changes.
func (w *waiter) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := make(chan struct{}, 1)
	go w.watch(ctx, changed)
	deadline := w.clock.Now().Add(w.timeout)
	printed := ""
	for {
		missing, err := w.check(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("interrupted while waiting for %s", w.goal)
		case errors.Is(err, errDeleted):
			_, _ = fmt.Fprintln(w.streams.ErrOut, "error:", err)
			return output.ErrNotMet
		case err != nil && !isTransient(err):
			return err
		case err != nil:
			missing = err.Error()
		case missing == "":
			_, err := fmt.Fprintln(w.streams.Out, w.goal.reached(w.backend))
			return err
		}
		if missing != printed {
			_, _ = fmt.Fprintf(w.streams.Out, "waiting for %s: %s\n", w.goal, printers.EscapeTerminal(missing))
			printed = missing
		}
		left := deadline.Sub(w.clock.Now())
		if left <= 0 {
			_, _ = fmt.Fprintf(w.streams.ErrOut, "error: %s not reached within %s\n", w.goal, w.timeout)
			return output.ErrNotMet
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-w.clock.After(min(pollInterval, left)):
		}
	}
}

// check reads the objects of the goal. It returns what is missing, or "" if the goal is reached.
func (w *waiter) check(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, w.cluster.Timeout)
	defer cancel()
	if !w.chosen {
		var err error
		if w.backend, err = choose(ctx, w.cluster, w.args, w.goal); err != nil {
			return "", err
		}
		w.chosen = true
	}
	var backend *v1alpha1.MetricsBackend
	if w.backend != "" {
		backend = &v1alpha1.MetricsBackend{}
		switch err := w.cluster.Objects.Get(ctx, client.ObjectKey{Name: w.backend}, backend); {
		case apierrors.IsNotFound(err) && w.goal.ofBackend():
			return "", fmt.Errorf("MetricsBackend %q was %w", w.backend, errDeleted)
		case err != nil && w.goal.ofBackend():
			return "", fmt.Errorf("get MetricsBackend %s: %w", w.backend, err)
		case err != nil:
			backend = nil
		}
	}
	switch {
	case w.goal.source != "":
		return w.goal.checkSource(backend), nil
	case w.goal.ofBackend():
		return w.goal.checkCondition(backend), nil
	}
	return w.goal.checkVersions(ctx, w.cluster, backend)
}

// isTransient reports whether a retry may succeed: kube-apiserver may be restarting.
func isTransient(err error) bool {
	var wrongName *connection.BackendNameError
	return !connection.IsDenied(err) && !errors.As(err, &wrongName)
}

// watch signals each change. A watch that ends is opened again and starts with the current
// objects, so that no change is missed.
func (w *waiter) watch(ctx context.Context, changed chan<- struct{}) {
	// All APIServices, since other versions may appear.
	var watched client.ObjectList = &apiregistrationv1.APIServiceList{}
	if w.goal.ofBackend() {
		watched = &v1alpha1.MetricsBackendList{}
	}
	for ctx.Err() == nil {
		// check has the same errors, and reports them.
		if events, err := w.cluster.Objects.Watch(ctx, watched); err == nil {
			for range events.ResultChan() {
				select {
				case changed <- struct{}{}:
				default:
				}
			}
			events.Stop()
		}
		select {
		case <-ctx.Done():
		case <-w.clock.After(pollInterval):
		}
	}
}
