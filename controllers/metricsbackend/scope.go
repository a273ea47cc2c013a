// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// scope is what the phases of one reconciliation hand to each other.
type scope struct {
	// backend is a copy of what was read around the cache; its status is written once, at the end.
	backend *v1alpha1.MetricsBackend
	// before is the status as it was read: what is in it was persisted.
	before v1alpha1.MetricsBackendStatus
	spec   v1alpha1.MetricsBackendSpec
	now    time.Time
	// history is what was remembered from earlier passes.
	history *history

	serving manifests.Serving
	// desired are the versions that should be registered, best first.
	desired []schema.GroupVersion
	// yielded are those that the spec names, too, and an older backend has.
	yielded []schema.GroupVersion
	// held is why a version is not registered although everything is ready for it,
	// by the APIService's name; heldInOrder holds them as they were found.
	held        map[string]*holdUp
	heldInOrder []schema.GroupVersion
	// implementation is what answers at spec.existing; nil until it was read.
	implementation *implementation
	// foreign are the APIServices of desired versions that are someone else's.
	foreign map[string]*apiregistrationv1.APIService
	// moving is an APIService that is about to be led to the target, or empty.
	moving string
	// apiServices is the state of each version, for the status.
	apiServices map[string]v1alpha1.APIServiceStatus

	// unmanaged: the operator may not look into the serving namespace.
	unmanaged bool
	// withoutNamespace: the serving namespace does not exist, or is being deleted.
	withoutNamespace bool
	// observed: registered is known.
	observed bool
	// registered are the live APIServices that we own, with or without our label, by name.
	registered map[string]*apiregistrationv1.APIService
	// kept are registered versions, by name, that the spec no longer names and that
	// stay for their clients; false while it is not known whether there are any.
	kept map[string]bool
	// caBundle is what clients verify serving pods with; nil before the first.
	caBundle            []byte
	certificateNotAfter time.Time
	// certificates is nil until they were read.
	certificates *certificates
	// applied is the generation of the Deployment that was applied.
	applied    int64
	deployment *appsv1.Deployment
	// rolledOut: every pod is of the current revision and available.
	rolledOut bool
	pods      []pod
	// proving are versions that may not be registered yet whatever pods say now, and why.
	proving map[schema.GroupVersion]string
	// transient: a failure of pods, or of endpoints of spec.existing, is within its
	// grace period and not reported yet.
	transient bool
	// podsRead: pods are all that there are, or that the operator may look at.
	podsRead bool
	// ending are pods whose deletion has begun and that still run. No Deployment
	// counts them, but connections to them stay open until they are gone.
	ending []pod

	// blocked: a phase found a reason to change nothing more.
	blocked bool
	stalled *stalledError
	// requeueAfter overrides when to look again; 0 leaves it to the conditions.
	requeueAfter time.Duration
	// introduced: there is no more to say yet than that work begins.
	introduced bool
	// gone: the finalizer is removed, there is no status to write.
	gone bool
}

// pod is a serving pod and what it answered.
type pod struct {
	*corev1.Pod
	// current: it is of the Deployment's newest revision.
	current bool
	ready   bool
	// answer is nil when the pod was not asked or failed to answer.
	answer *servingclient.Answer
	err    error
}

// stalledError stops work until something outside changes.
type stalledError struct{ reason, message string }

// Error implements error.
func (e *stalledError) Error() string { return e.message }

func stall(reason, format string, args ...any) error {
	return &stalledError{reason: reason, message: fmt.Sprintf(format, args...)}
}

// errWait stops work for now: the phase has set a condition that tells why.
var errWait = errors.New("waiting")

func (r *Reconciler) newScope(cached *v1alpha1.MetricsBackend) *scope {
	backend := cached.DeepCopy()
	spec := *backend.Spec.DeepCopy()
	v1alpha1.SetDefaults(&spec)
	if spec.Namespace == "" {
		spec.Namespace = r.Namespace
	}
	image := spec.Serving.Image
	if image == "" {
		image = r.ServingImage
	}
	s := &scope{
		backend:     backend,
		before:      *backend.Status.DeepCopy(),
		spec:        spec,
		now:         r.Clock.Now(),
		history:     r.history(backend.Name),
		held:        map[string]*holdUp{},
		foreign:     map[string]*apiregistrationv1.APIService{},
		apiServices: map[string]v1alpha1.APIServiceStatus{},
		registered:  map[string]*apiregistrationv1.APIService{},
		proving:     map[schema.GroupVersion]string{},
		kept:        map[string]bool{},
		serving: manifests.Serving{
			Backend:     backend.Name,
			Namespace:   spec.Namespace,
			Image:       image,
			KubeletPort: v1alpha1.DefaultKubeletPort,
			Spec:        spec.Serving,

			Sources:         spec.Sources,
			CustomMetrics:   spec.CustomMetrics != nil,
			ExternalMetrics: spec.ExternalMetrics != nil,
		},
	}
	if spec.ResourceMetrics != nil && spec.ResourceMetrics.Scrape.Port != nil {
		s.serving.KubeletPort = *spec.ResourceMetrics.Scrape.Port
	}
	s.desired = desiredVersions(spec)
	return s
}

// explain turns an error into what the user should know and do. It returns false
// for errors that are retried without a word.
func (s *scope) explain(err error) bool {
	var stalled *stalledError
	var notOwned *inventory.NotOwnedError
	switch {
	case errors.Is(err, errWait):
	case errors.As(err, &stalled):
		s.stall(stalled)
	case errors.As(err, &notOwned):
		s.stall(&stalledError{v1alpha1.ReasonNotOwned, notOwned.Error()})
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		s.stall(&stalledError{v1alpha1.ReasonNamespaceTerminating, terminating(s.serving.Namespace)})
	case apierrors.IsForbidden(err):
		s.stall(&stalledError{v1alpha1.ReasonForbidden, "the operator lacks a permission, see config/rbac: " + err.Error()})
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		s.stall(&stalledError{v1alpha1.ReasonInvalid,
			"kube-apiserver refuses an object: correct the spec, or, if someone else changed the object, delete it and it is made anew: " + err.Error()})
	default:
		return false
	}
	return true
}

func (s *scope) stall(e *stalledError) {
	if s.stalled == nil {
		s.stalled = e
	}
}

// mark sets a condition that speaks of the current generation.
func (s *scope) mark(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.backend.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: text.Truncate(message, maxMessage),
		ObservedGeneration: s.backend.Generation,
		LastTransitionTime: metav1.NewTime(s.now),
	})
}

// condition returns a condition, an empty one when it was never set.
func (s *scope) condition(kind string) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(s.backend.Status.Conditions, kind), metav1.Condition{})
}

// setState records how far a version is.
func (s *scope) setState(gv schema.GroupVersion, state v1alpha1.APIServiceState, message string) {
	name := manifests.APIServiceName(gv)
	s.apiServices[name] = v1alpha1.APIServiceStatus{Name: name, State: state, Message: text.Truncate(message, maxMessage)}
}

// persisted is the state of a version in the status that was read.
func (s *scope) persisted(name string) v1alpha1.APIServiceState {
	for _, known := range s.before.APIServices {
		if known.Name == name {
			return known.State
		}
	}
	return ""
}

// registeredNames are the names of our APIServices, in order.
func (s *scope) registeredNames() []string { return slices.Sorted(maps.Keys(s.registered)) }

func (s *scope) readyPods() []pod {
	return slices.DeleteFunc(slices.Clone(s.pods), func(p pod) bool { return !p.ready })
}

func (s *scope) wants(name string) bool {
	return slices.ContainsFunc(s.desired, func(gv schema.GroupVersion) bool { return manifests.APIServiceName(gv) == name })
}

// again asks for another look at once, after a breath for whoever is in the way.
func (s *scope) again() { s.requeueAfter = 20 * time.Millisecond }

func (s *scope) result() ctrl.Result { return ctrl.Result{RequeueAfter: s.requeueAfter} }
