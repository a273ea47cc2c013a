// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// The operator is stopped after each write of an upgrade, and of a rollback to an
// image whose pods know no gate, so that the order alone protects clients; another
// one goes on. After each of its calls, and all the time, no version is registered
// or in discovery that a ready pod does not serve, and it ends as if nothing had
// happened. To stop after a call that changes nothing proves no more than after the
// one before it: the next process has no memory, and finds the same. Without the
// retirement before everything else this fails at the first rollback.
func TestStoppedAfterEachWrite(t *testing.T) {
	suite := take(t)
	suite.workload.ungated.Store(true)
	t.Cleanup(func() { suite.workload.ungated.Store(false) })
	j := &stoppedJourneys{t: t, suite: suite}
	j.create()
	guard := startGuard(t, suite)
	directions := []*direction{
		{name: "rollback", change: rolledBack, image: imageV1beta1, versions: "v1beta1",
			writes: []string{"delete *v1.APIService v1.metrics.k8s.io", "apply *v1.DeploymentApplyConfiguration", "patch status"}},
		{name: "upgrade", change: upgraded, image: imageBoth, versions: "v1 v1beta1",
			writes: []string{"apply *v1.DeploymentApplyConfiguration", "apply *v1.APIServiceApplyConfiguration", "patch status"}},
	}
	for slices.ContainsFunc(directions, func(d *direction) bool { return !d.done }) {
		for _, d := range directions {
			j.travel(d)
			if t.Failed() {
				t.FailNow()
			}
		}
	}
	guard.stop(t)
	for _, d := range directions {
		t.Logf("%s: %d stops: %s", d.name, len(d.stops), strings.Join(d.stops, "; "))
		for _, write := range d.writes {
			if !slices.Contains(d.stops, write) {
				t.Errorf("the %s was never stopped after %s: nothing was proven", d.name, write)
			}
		}
	}
}

// direction is a way from one image, and what it serves, to the other one.
type direction struct {
	name            string
	change          func(*v1alpha1.MetricsBackendSpec)
	image, versions string
	// writes are those that it takes.
	writes []string
	// stops are the writes after which the operator was stopped, next the number of
	// the one of the next journey. A round ends where there is no further one.
	stops        []string
	next, rounds int
	done         bool
}

// mostRounds bounds the rounds of a direction. How many writes there are before a
// certain one depends on what the operator sees of the pods on the way: in one round
// no journey may stop right after it.
const mostRounds = 3

func (d *direction) endRound() {
	d.next, d.rounds = 0, d.rounds+1
	missed := slices.ContainsFunc(d.writes, func(write string) bool { return !slices.Contains(d.stops, write) })
	d.done = !missed || d.rounds == mostRounds
}

type stoppedJourneys struct {
	t        *testing.T
	suite    *controlPlane
	children int
}

// create makes the backend, which no other operator sees, and removes it in the end.
func (j *stoppedJourneys) create() {
	j.t.Helper()
	if err := j.suite.admin.Create(j.t.Context(), newBackend(drivenByTest)); err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(j.remove)
	j.run(j.t.Context(), j.start(0), func(ctx context.Context) error { return settledWith(ctx, j.suite, imageBoth, "v1 v1beta1") })
	j.children = len(listChildren(j.t, j.suite, drivenByTest))
}

func (j *stoppedJourneys) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := j.suite.admin.Delete(ctx, newBackend(drivenByTest)); err != nil {
		j.t.Errorf("delete the MetricsBackend: %v", err)
	}
	j.run(ctx, j.start(0), func(ctx context.Context) error {
		err := j.suite.admin.Get(ctx, client.ObjectKey{Name: drivenByTest}, &v1alpha1.MetricsBackend{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still there (%w)", err)
		}
		return nil
	})
}

// travel goes one way, with an operator that is stopped after its next write of the
// round, if it makes as many, and then with another one.
func (j *stoppedJourneys) travel(d *direction) {
	j.t.Helper()
	changeBackend(j.t, j.suite, drivenByTest, d.change)
	arrived := func(ctx context.Context) error { return settledWith(ctx, j.suite, d.image, d.versions) }
	n := 0
	if !d.done {
		d.next++
		n = d.next
	}
	if stopped := j.run(j.t.Context(), j.start(n), arrived); stopped != "" {
		d.stops = append(d.stops, stopped)
		j.run(j.t.Context(), j.start(0), arrived)
	} else if !d.done {
		d.endRound()
	}
	if got := len(listChildren(j.t, j.suite, drivenByTest)); d.image == imageBoth && got != j.children {
		j.t.Errorf("%d children after the %s stopped at write %d, want %d as before", got, d.name, n, j.children)
	}
}

// start starts an operator that stops after its nth write, or never for 0.
func (j *stoppedJourneys) start(n int) *process {
	writes := 0
	return startProcess(j.t, j.suite, func(call string, changed bool) bool {
		if !changed {
			return false
		}
		j.look("after " + call)
		writes++
		return writes == n
	})
}

// look reports each version that is in discovery and not served.
func (j *stoppedJourneys) look(when string) {
	broken, err := brokenInvariant(context.Background(), j.suite, func() ([]string, error) {
		return discoveredAt(context.Background(), j.suite.config)
	})
	if err != nil {
		j.t.Errorf("%s: %v", when, err)
	}
	for _, what := range broken {
		j.t.Errorf("%s: in discovery is %s", when, what)
	}
}

// run drives the operator until it is stopped, and returns after which call, or
// until arrived.
func (j *stoppedJourneys) run(ctx context.Context, p *process, arrived func(context.Context) error) string {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		stopped, failed := p.reconcile(ctx)
		if stopped != "" {
			return stopped
		}
		err := arrived(ctx)
		if err == nil {
			return ""
		}
		select {
		case <-ctx.Done():
			j.t.Fatalf("not within %s: %v; the last turn of the operator: %v", patience, err, failed)
		case <-ticker.C:
		}
		j.look("meanwhile")
	}
}

// settledWith tells what is missing until the backend is ready with ready pods of the
// image alone, and the versions, in their order in discovery.
func settledWith(ctx context.Context, suite *controlPlane, image, versions string) error {
	backend := &v1alpha1.MetricsBackend{}
	if err := suite.admin.Get(ctx, client.ObjectKey{Name: drivenByTest}, backend); err != nil {
		return err
	}
	if c := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionReady); c == nil ||
		c.Status != metav1.ConditionTrue || c.ObservedGeneration != backend.Generation {
		return fmt.Errorf("generation %d: %s", backend.Generation, show(backend))
	}
	images, err := imagesOfPods(ctx, suite)
	if err != nil || !slices.Equal(images, []string{image, image}) {
		return fmt.Errorf("pods run %v (%w)", images, err)
	}
	got, err := discoveredAt(ctx, suite.config)
	if err != nil || strings.Join(got, " ") != versions {
		return fmt.Errorf("discovery lists %v (%w)", got, err)
	}
	return nil
}
