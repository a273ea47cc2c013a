// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/gitops"
)

// statusChecker reads every stored version of the MetricsBackend as GitOps tools do, and
// compares each with the cluster at that moment.
type statusChecker struct {
	t      *testing.T
	w      *fakeCluster
	reader *gitops.Reader
	before *v1alpha1.MetricsBackend
	// seen counts the results of kstatus, argo those of Argo CD.
	seen map[status.Status]int
	argo map[string]int
}

func newStatusChecker(t *testing.T, fc *fakeCluster) *statusChecker {
	t.Helper()
	reader, err := gitops.NewReader("../..")
	if err != nil {
		t.Fatal(err)
	}
	return &statusChecker{t: t, w: fc, reader: reader, seen: map[status.Status]int{}, argo: map[string]int{}}
}

// check reads the object after a write.
func (g *statusChecker) check(after string) {
	g.t.Helper()
	backend := &v1alpha1.MetricsBackend{}
	err := g.w.raw.Get(context.Background(), client.ObjectKey{Name: backendName}, backend)
	if apierrors.IsNotFound(err) {
		return
	}
	g.w.must(err)
	if g.before != nil && g.before.ResourceVersion == backend.ResourceVersion {
		return
	}
	reading, problems, err := g.reader.Read(backend)
	g.w.must(err)
	g.seen[reading.KStatus.Status]++
	g.argo[reading.ArgoCD.Status]++
	// The cluster's state, independent of the conditions.
	if done := g.w.specDifference(backend); reading.KStatus.Status == status.CurrentStatus && done != "" {
		problems = append(problems, "it is not done: "+done)
	}
	for _, problem := range append(problems, conditionProblems(g.before, backend)...) {
		g.t.Errorf("after %s: %s: %s\n%s", after, reading, problem, g.w.show())
	}
	g.before = backend
}

// conditionProblems returns what is wrong with the conditions of one stored version, and
// with the change from the one before, which may be nil.
func conditionProblems(before, now *v1alpha1.MetricsBackend) []string {
	problems := gitops.Lint(before, now)
	for _, kind := range append(slices.Clone(readyConditions), v1alpha1.ConditionSourcesHealthy) {
		if len(now.Status.Conditions) > 0 && meta.FindStatusCondition(now.Status.Conditions, kind) == nil {
			problems = append(problems, "no "+kind)
		}
	}
	return problems
}

// specDifference returns how the cluster differs from the spec. It does not use the
// status.
func (fc *fakeCluster) specDifference(backend *v1alpha1.MetricsBackend) string {
	s := fc.reconciler().newState(backend)
	wanted := 0
	for _, gv := range []string{"v1", "v1beta1"} {
		wants := slices.Contains(s.versions.desired, schema.GroupVersion{Group: "metrics.k8s.io", Version: gv}) && (s.deploys() || fc.other.allServe(gv))
		if wants {
			wanted++
		}
		if registered := slices.Contains(fc.registeredVersions(), gv); registered != wants {
			return fmt.Sprintf("%s is registered: %t, wanted: %t", gv, registered, wants)
		}
	}
	if wanted == 0 {
		return "nothing is wanted"
	}
	if !s.deploys() {
		if fc.deployed() || fc.pointsToNow(v1beta1) != metricsServer {
			return fmt.Sprintf("v1beta1 points to %s, our Deployment is there: %t", fc.pointsToNow(v1beta1), fc.deployed())
		}
		return ""
	}
	ready := 0
	for _, p := range fc.pods() {
		switch {
		case p.DeletionTimestamp != nil:
		case p.Spec.Containers[0].Image != s.serving.Image:
			return fmt.Sprintf("pod %s has image %s, not %s", p.Name, p.Spec.Containers[0].Image, s.serving.Image)
		case isReady(&p):
			ready++
		}
	}
	if want := int(ptr.Deref(s.spec.Serving.Replicas, 0)); ready != want {
		return fmt.Sprintf("%d pods are ready, not %d", ready, want)
	}
	if fc.refused || fc.stale {
		return "requests fail"
	}
	return ""
}

// gitopsChanges are some of those of the explorer, and others that need a user, or that keep failing.
func gitopsChanges() map[string]change {
	explored, table := changes(), map[string]change{}
	for _, name := range []string{
		"created", "a version is taken out", "a version is added", "a newer image and its version", "an older image that lacks v1",
		"taken over", "given back", "from serving to existing", "from existing to serving", "the authority is rotated",
		"a certificate from a Secret", "no certificate from a Secret", "deletion", "deletion before it is ready",
		"a missing Secret", "a missing Secret from the beginning", "a version is taken out that clients use",
		"all groups, of which one is someone else's",
	} {
		table[name] = explored[name]
	}
	waits := func(fc *fakeCluster) {
		pullSecret(fc)
		fc.reconcileUntil(fc.reconciler(), func() bool { return fc.isStalledBy(v1alpha1.ReasonSecretMissing) })
	}
	table["resumed"] = change{
		prepare: waits,
		change: func(fc *fakeCluster) {
			fc.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "registry"}})
		},
		done: (*fakeCluster).isReady,
	}
	table["deleted while stalled"] = change{prepare: all(becomeReady, waits), change: deleteBackend, done: (*fakeCluster).isGone}
	table["requests begin to fail"] = change{
		prepare: becomeReady, change: func(fc *fakeCluster) { fc.refused = true },
		done: func(fc *fakeCluster) bool {
			return fc.condition(v1alpha1.ConditionAvailable).Reason == v1alpha1.ReasonRequestFailed
		},
	}
	return table
}

// read makes a change with a statusChecker. A call for which fails returns an error is
// not made.
func (c change) read(t *testing.T, fails func(c call) error) (*statusChecker, *Reconciler) {
	t.Helper()
	backend := newBackend()
	// The CRD's default.
	backend.Status.ObservedGeneration = -1
	fc := newFakeCluster(t, backend)
	g := newStatusChecker(t, fc)
	g.check("creation")
	if c.prepare != nil {
		c.prepare(fc)
	}
	g.before = nil
	g.check("preparation")
	if c.change != nil {
		c.change(fc)
	}
	g.check("the change")
	r := fc.reconciler(intercepted(func(c call, make func() error) error {
		if err := fails(c); err != nil {
			return err
		}
		err := make()
		g.check(c.name)
		return err
	}))
	fc.reconcileUntil(r, func() bool { return c.done(fc) })
	return g, r
}

// GitOps tools read every stored version correctly: Current, or Healthy, only when the
// cluster matches the spec.
func TestEachStatusReadsRightly(t *testing.T) {
	t.Parallel()
	// Each result must occur in some change, or nothing is proven of it.
	met := make(chan map[status.Status]int, 100)
	t.Run("changes", func(t *testing.T) {
		for name, c := range sampled(t, gitopsChanges()) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				g, r := c.read(t, func(call) error { return nil })
				// Nothing that was written is reverted while nothing happens.
				for range 3 {
					if g.w.isGone() {
						break
					}
					mustReconcile(t, r)
				}
				// A sync of Argo CD fails at the first Degraded.
				if g.argo["Degraded"] > 0 && g.seen[status.FailedStatus] == 0 && !g.w.isGone() && g.w.isReady() {
					t.Errorf("Argo CD read Degraded on the way to Ready: %v", g.argo)
				}
				met <- g.seen
				t.Logf("kstatus %v, Argo CD %v", g.seen, g.argo)
			})
		}
	})
	close(met)
	total := map[status.Status]int{}
	for seen := range met {
		for kind, n := range seen {
			total[kind] += n
		}
	}
	for _, kind := range []status.Status{status.InProgressStatus, status.CurrentStatus, status.FailedStatus, status.TerminatingStatus} {
		// One change alone cannot produce them all.
		if total[kind] == 0 && !testing.Short() {
			t.Errorf("no change met %s: %v", kind, total)
		}
	}
}

// The same while every call fails repeatedly the first times that it is made.
func TestEachStatusReadsRightlyUnderFailures(t *testing.T) {
	t.Parallel()
	for name, c := range sampled(t, gitopsChanges()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := map[string]int{}
			c.read(t, func(c call) error {
				// Often enough to be reported in the status.
				if failed[c.name]++; failed[c.name] <= failuresToReport && c.name != patchStatus {
					return errors.New("etcdserver: leader changed")
				}
				return nil
			})
		})
	}
}
