// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/adoption"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/certificates"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/installation"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// Prober probes single serving pods and endpoints.
type Prober interface {
	Probe(ctx context.Context, pod servingclient.Pod, versions []schema.GroupVersion) (*servingclient.Answer, error)
	Read(ctx context.Context, pod servingclient.Pod, path string, query url.Values, into any) error
}

// Aggregator queries kube-apiservers about aggregated APIs.
type Aggregator interface {
	Discovered(ctx context.Context, versions []schema.GroupVersion) (*aggregator.Presence, error)
	Lagging(ctx context.Context, name string, upToDate func(*apiregistrationv1.APIService) bool) (lagging, unreachable []string, err error)
	Ports(ctx context.Context) ([]int32, error)
	FreshNodeSample(ctx context.Context, version schema.GroupVersion, since time.Time) (bool, error)
	Discovers(ctx context.Context, version schema.GroupVersion) error
	Answers(ctx context.Context, path string) error
	Get(ctx context.Context, path string, query url.Values, into any) error
}

// Options configure a Reconciler.
type Options struct {
	// Client writes, and reads labelled objects from a cache.
	Client client.Client
	// APIReader reads around the cache.
	APIReader client.Reader
	Events    events.EventRecorder
	Pods      Prober
	// Directory receives the ready pods, unless it is nil.
	Directory  *servingclient.Directory
	Aggregator Aggregator
	Clock      clock.PassiveClock

	// Namespace is the operator's own, which names it among several in a cluster, and the
	// default of spec.serving.namespace.
	Namespace string
	// Namespaces are those that serving may run in.
	Namespaces []string
	// ServingImage is the default of spec.serving.image.
	ServingImage string
}

// Reconciler reconciles MetricsBackends.
type Reconciler struct {
	Options
	phases  []phase
	applier *inventory.Applier
	tokens  *servingclient.Tokens
	// installation is this operator beside those of other namespaces.
	installation *installation.Installation
	// certificateReconciler is for the phases certificates and rotate.
	certificateReconciler *certificates.Reconciler
	adoptionChecker       *adoption.Checker
	// histories holds a *history by backend name.
	histories sync.Map
	// next is lifecycle.Decide, which tests watch.
	next func(*lifecycle.Version) lifecycle.Decision
}

// New returns a Reconciler. All state that it keeps may be lost at a restart.
func New(o Options) *Reconciler {
	o.Directory = cmp.Or(o.Directory, servingclient.NewDirectory())
	applier := inventory.NewApplier(o.Client, o.APIReader, o.Clock)
	return &Reconciler{
		Options:      o,
		phases:       phases(),
		next:         lifecycle.Decide,
		applier:      applier,
		tokens:       servingclient.NewTokens(o.Client, o.Clock),
		installation: &installation.Installation{APIReader: o.APIReader, Clock: o.Clock, Namespace: o.Namespace},
		certificateReconciler: &certificates.Reconciler{
			Client: o.Client, APIReader: o.APIReader, Applier: applier, Issuer: servingcert.NewIssuer(o.Clock), Aggregator: o.Aggregator,
		},
		adoptionChecker: &adoption.Checker{Client: o.Client, APIReader: o.APIReader, Requester: o.Aggregator, Clock: o.Clock},
	}
}

// phase is one step of a reconciliation. Phases that act change objects, and are skipped
// once an earlier phase blocked. The others only observe, so that the status is accurate
// for a stalled backend. (retire acts too: a stalled backend must still retire versions.)
type phase struct {
	name string
	acts bool
	run  func(*Reconciler, context.Context, *reconcileState) error
}

// phases returns the phases in the order that keeps the invariant.
func phases() []phase {
	return []phase{
		{name: "validate", run: (*Reconciler).validate},
		{name: "observe", run: (*Reconciler).observe},
		{name: "claims", run: (*Reconciler).claims},
		{name: "retire", run: (*Reconciler).retire},
		{name: "ownership", acts: true, run: (*Reconciler).checkOwnership},
		{name: "certificates", run: (*Reconciler).certificates},
		{name: "deploy", acts: true, run: (*Reconciler).deploy},
		{name: "rollout", run: (*Reconciler).rollout},
		{name: "probe", run: (*Reconciler).probe},
		{name: "rotate", run: (*Reconciler).rotate},
		{name: "register", run: (*Reconciler).register},
		{name: "verify", run: (*Reconciler).verify},
		{name: "undeploy", acts: true, run: (*Reconciler).undeploy},
		{name: "sources", run: (*Reconciler).sources},
		{name: "consumers", run: (*Reconciler).consumers},
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	backend := &v1alpha1.MetricsBackend{}
	// Around the cache: phases depend on what the status says was started, and this
	// process may have just written it.
	if err := r.APIReader.Get(ctx, req.NamespacedName, backend); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("get MetricsBackend: %w", err)
	}
	s := r.newState(backend)
	if !backend.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(backend, v1alpha1.Finalizer) {
		r.forget(req.Name) // others keep it; nothing of it is left to remove
		return ctrl.Result{}, nil
	}
	decision, err := r.installation.Decide(ctx, backend, r.manages(s))
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case decision.Standing == installation.Excluded, decision.Standing == installation.Uninvolved:
		return r.leaveToOwner(ctx, s, decision)
	case decision.Standing == installation.Claims:
		return r.claim(ctx, s, decision)
	}
	if recorded := &s.backend.Status.Installation; recorded.Other != "" && !r.installation.Running(ctx, recorded.Other) {
		recorded.Other = "" // an operator that reported itself does not run any more
	}
	if !backend.DeletionTimestamp.IsZero() {
		gone, err := r.finalize(ctx, s)
		if gone {
			r.forget(req.Name)
			return ctrl.Result{}, nil
		}
		return r.finish(ctx, s, err, s.summarize)
	}
	if s.isNew() {
		// Without conditions kstatus considers the object done.
		s.initialize()
		return r.finish(ctx, s, r.addFinalizer(ctx, s), nil)
	}
	return r.finish(ctx, s, r.runPhases(ctx, s), s.summarize)
}

func (r *Reconciler) runPhases(ctx context.Context, s *reconcileState) error {
	var errs []error
	for _, p := range r.phases {
		if p.acts && s.outcome.blocked {
			continue
		}
		if err := p.run(r, ctx, s); err != nil {
			s.outcome.blocked = true
			stalled, expected := classifyError(err, s.serving.Namespace)
			if stalled != nil {
				s.setStalled(stalled)
			}
			if !expected {
				errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// finish summarizes the conditions, writes the status if it changed, and records
// transitions. failed is the error of the reconciliation, if any; summarize is nil for a
// new backend.
func (r *Reconciler) finish(ctx context.Context, s *reconcileState, failed error, summarize func(error)) (ctrl.Result, error) {
	failures := s.history.streaks.Set(stateKey{state: reconcileFailing}, failed != nil).Count
	if failed != nil && failures < failuresToReport {
		// Most failures are gone at the next try, and the condition would flap.
		return ctrl.Result{}, failed
	}
	if summarize != nil {
		summarize(failed)
	}
	err := r.writeStatus(ctx, s)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		klog.FromContext(ctx).V(2).Info("The MetricsBackend changed meanwhile, starting over", "err", err)
		s.requeueNow()
	case err != nil:
		failed = errors.Join(failed, err)
	default:
		for _, gv := range s.outcome.unanswered {
			s.history.streaks.Set(stateKey{state: retiredForFailing, name: gv.String()}, true)
		}
		r.recordTransitions(s)
		r.recordMetrics(s)
	}
	if failed != nil {
		return ctrl.Result{}, failed
	}
	return ctrl.Result{RequeueAfter: s.outcome.requeueAfter}, nil
}

func (r *Reconciler) addFinalizer(ctx context.Context, s *reconcileState) error {
	base := s.backend.DeepCopy()
	if !controllerutil.AddFinalizer(s.backend, v1alpha1.Finalizer) {
		return nil
	}
	status := s.backend.Status
	if err := r.Client.Patch(ctx, s.backend, unchangedSince(base), client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return fmt.Errorf("add the finalizer: %w", err)
	}
	s.backend.Status = status
	return nil
}

// unchangedSince returns a patch from base, with which kube-apiserver reports a conflict if the object has changed since it was read.
func unchangedSince(base client.Object) client.Patch {
	return client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
}

// forget drops the state of a MetricsBackend that is gone.
func (r *Reconciler) forget(name string) {
	r.histories.Delete(name)
	r.Directory.Forget(name)
	forgetMetrics(name)
}
