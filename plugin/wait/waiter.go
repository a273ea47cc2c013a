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
	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// lookAgain is for what no watch tells of: discovery, and a watch that broke.
const lookAgain = time.Second

// waiter waits for one goal.
type waiter struct {
	cluster *connection.Cluster
	streams genericiooptions.IOStreams
	clock   clock.Clock
	goal    goal
	// args may name a MetricsBackend.
	args []string
	// chosen: backend is its name, or empty when there is none to speak of.
	chosen  bool
	backend string
	timeout time.Duration
}

// errDeleted: what is waited for can no longer come.
var errDeleted = errors.New("deleted meanwhile")

// run looks whenever a watch tells of a change, and prints what is missing whenever
// that changes.
func (w *waiter) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := make(chan struct{}, 1)
	go w.follow(ctx, changed)
	deadline := w.clock.Now().Add(w.timeout)
	told := ""
	for {
		done, missing, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("interrupted while waiting for %s", w.goal)
		case errors.Is(err, errDeleted):
			_, _ = fmt.Fprintln(w.streams.ErrOut, "error:", err)
			return output.ErrNotMet
		case err != nil && !passes(err):
			return err
		case err != nil:
			missing = err.Error()
		case done:
			_, err := fmt.Fprintln(w.streams.Out, w.goal.reached(w.backend))
			return err
		}
		if missing != told {
			_, _ = fmt.Fprintf(w.streams.Out, "waiting for %s: %s\n", w.goal, printers.EscapeTerminal(missing))
			told = missing
		}
		left := deadline.Sub(w.clock.Now())
		if left <= 0 {
			_, _ = fmt.Fprintf(w.streams.ErrOut, "error: %s not reached within %s\n", w.goal, w.timeout)
			return output.ErrNotMet
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-w.clock.After(min(lookAgain, left)):
		}
	}
}

// look reads what the goal depends on, and judges it.
func (w *waiter) look(ctx context.Context) (bool, string, error) {
	ctx, cancel := context.WithTimeout(ctx, w.cluster.Timeout)
	defer cancel()
	if !w.chosen {
		var err error
		if w.backend, err = choose(ctx, w.cluster, w.args, w.goal); err != nil {
			return false, "", err
		}
		w.chosen = true
	}
	var seen sight
	if w.backend != "" {
		var backend v1alpha1.MetricsBackend
		switch err := w.cluster.Objects.Get(ctx, client.ObjectKey{Name: w.backend}, &backend); {
		case apierrors.IsNotFound(err) && w.goal.ofBackend():
			return false, "", fmt.Errorf("MetricsBackend %q was %w", w.backend, errDeleted)
		case err == nil:
			seen.backend = &backend
		case w.goal.ofBackend():
			return false, "", fmt.Errorf("get MetricsBackend %s: %w", w.backend, err)
		}
	}
	if !w.goal.ofBackend() {
		var err error
		if seen.registrations, err = aggregation.Registrations(ctx, w.cluster, w.goal.group); err != nil {
			return false, "", err
		}
	}
	return w.goal.judge(ctx, w.cluster, seen)
}

// passes tells whether an error may be gone at the next look: kube-apiserver may be
// restarting, which is when people wait.
func passes(err error) bool {
	var misnamed *connection.MisnamedError
	return !connection.Refused(err) && !errors.As(err, &misnamed)
}

// watched is the kind whose changes are worth a look: of APIServices every one, since
// one of another version may come.
func (w *waiter) watched() client.ObjectList {
	if w.goal.ofBackend() {
		return &v1alpha1.MetricsBackendList{}
	}
	return &apiregistrationv1.APIServiceList{}
}

// follow tells of each change of such an object. A watch that ends is begun anew, and
// begins with the objects as they are, so that nothing is missed.
func (w *waiter) follow(ctx context.Context, changed chan<- struct{}) {
	for ctx.Err() == nil {
		// Errors are those of look, too, which explains them.
		if events, err := w.cluster.Objects.Watch(ctx, w.watched()); err == nil {
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
		case <-w.clock.After(lookAgain):
		}
	}
}
