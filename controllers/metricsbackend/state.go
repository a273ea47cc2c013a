// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/certificates"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// reconcileState is what the phases of one reconciliation share: what was read at the
// start, then their results. The comment of a result names the phases that write it.
type reconcileState struct {
	// backend was read around the cache; its status is written once, at the end.
	backend *v1alpha1.MetricsBackend
	// storedStatus is the status as it was read.
	storedStatus v1alpha1.MetricsBackendStatus
	spec         v1alpha1.MetricsBackendSpec
	now          time.Time
	// history is kept from earlier passes.
	history *history
	serving manifests.Serving

	// namespace is that of serving pods, by validate.
	namespace namespaceState
	// registered are the live APIServices that we own, with or without our label, by
	// name, by observe, retire and register. It is nil until observe has read them.
	registered map[string]*apiregistrationv1.APIService
	// others are the live APIServices that we do not own, by name, by observe.
	others map[string]*apiregistrationv1.APIService
	// canary is the APIService of the canary API or nil, by observe.
	canary   *apiregistrationv1.APIService
	versions versionDecisions
	// apiServices is the new state of each version, by APIService name.
	apiServices map[string]v1alpha1.APIServiceStatus
	// certificate is empty until its Secrets were read, by certificates and rotate.
	certificate certificates.Certificate
	rollout     rolloutState
	probed      probeState
	outcome     outcome
}

type namespaceState struct {
	// unmanaged: the operator may not read it.
	unmanaged bool
	// gone: it does not exist, or is being deleted.
	gone bool
}

// usable reports whether objects can be created and deleted in the namespace.
func (n namespaceState) usable() bool { return !n.unmanaged && !n.gone }

// versionDecisions are of validate, claims, retire, ownership and register.
type versionDecisions struct {
	// desired are the versions that should be registered, best first.
	desired []schema.GroupVersion
	// conflicts are in the order in which they were found.
	conflicts []defect
	// decided are the states in which versions are, by APIService name.
	decided map[string]lifecycle.State
	// kept are registered versions that the spec no longer names and that stay for their
	// clients, by APIService name; false until pods reported their clients.
	kept map[string]bool
}

// rolloutState is of deploy and rollout.
type rolloutState struct {
	// appliedGeneration is that of the Deployment.
	appliedGeneration int64
	// changed says who keeps changing an object of ours, or is empty.
	changed string
	// finished: every pod is available and of the current revision.
	finished bool
	// failing: the rollout is not finished, and something keeps it from progressing.
	failing bool
	// podsRead: pods are complete, or not to be read.
	podsRead bool
	pods     pods
	// terminating pods are still running. No Deployment counts them, but connections to
	// them stay open until they are gone.
	terminating pods
}

// probeState is of probe, which also sets the answers of pods.
type probeState struct {
	// existing is the Service of spec.existing, or nil if it was not read.
	existing *probedService
	// recovering are versions that cannot be registered yet since their requests failed,
	// and why.
	recovering map[schema.GroupVersion]string
	// transient: a failure of pods, or of endpoints of spec.existing, is within its grace
	// period and not reported yet.
	transient bool
}

// outcome is of all phases.
type outcome struct {
	// blocked: phases that act are skipped.
	blocked bool
	stalled *stalledError
	// unanswered are versions that the status retires since no pod answers their requests.
	unanswered []schema.GroupVersion
	// requeueAfter overrides the delay that follows from the conditions, unless 0.
	requeueAfter time.Duration
}

func (r *Reconciler) newState(cached *v1alpha1.MetricsBackend) *reconcileState {
	backend := cached.DeepCopy()
	spec := *backend.Spec.DeepCopy()
	v1alpha1.SetDefaults(&spec)
	spec.Serving.Namespace = cmp.Or(spec.Serving.Namespace, r.Namespace)
	s := &reconcileState{
		backend:      backend,
		storedStatus: *backend.Status.DeepCopy(),
		spec:         spec,
		now:          r.Clock.Now(),
		history:      r.history(backend.Name),
		apiServices:  map[string]v1alpha1.APIServiceStatus{},
		versions: versionDecisions{
			desired: desiredVersions(spec), kept: map[string]bool{}, decided: map[string]lifecycle.State{},
		},
		probed: probeState{recovering: map[schema.GroupVersion]string{}},
		serving: manifests.Serving{
			Backend:      backend.Name,
			Namespace:    spec.Serving.Namespace,
			Installation: r.Namespace,
			Image:        cmp.Or(spec.Serving.Image, r.ServingImage),
			KubeletPort:  v1alpha1.DefaultKubeletPort,
			Spec:         spec.Serving,

			Sources:         spec.Sources,
			Scrapes:         backend.Serves(manifests.ResourceMetricsGroup),
			CustomMetrics:   spec.CustomMetrics != nil,
			ExternalMetrics: spec.ExternalMetrics != nil,
		},
	}
	if spec.ResourceMetrics != nil && spec.ResourceMetrics.Scrape.Port != nil {
		s.serving.KubeletPort = *spec.ResourceMetrics.Scrape.Port
	}
	return s
}

// setStalled stalls the backend, unless an earlier phase has.
func (s *reconcileState) setStalled(e *stalledError) {
	if s.outcome.stalled == nil {
		s.outcome.stalled = e
	}
}

// setCondition sets a condition for the current generation.
func (s *reconcileState) setCondition(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.backend.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: text.Truncate(message, maxMessage),
		ObservedGeneration: s.backend.Generation,
		LastTransitionTime: metav1.NewTime(s.now).Rfc3339Copy(), // as it is stored: writeStatus compares
	})
}

// conditionResult is one part's contribution to a condition.
type conditionResult struct {
	status          metav1.ConditionStatus
	reason, message string
}

func (s *reconcileState) setResult(kind string, r conditionResult) {
	s.setCondition(kind, r.status, r.reason, r.message)
}

// condition returns a condition, or an empty one.
func (s *reconcileState) condition(kind string) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(s.backend.Status.Conditions, kind), metav1.Condition{})
}

func (s *reconcileState) setVersionState(gv schema.GroupVersion, state v1alpha1.APIServiceState, message string) {
	name := manifests.APIServiceName(gv)
	s.apiServices[name] = v1alpha1.APIServiceStatus{Name: name, State: state, Message: text.Truncate(message, maxMessage)}
}

// storedVersion returns the state of a version in a stored status, if any.
func storedVersion(status *v1alpha1.MetricsBackendStatus, name string) v1alpha1.APIServiceStatus {
	return find(status.APIServices, func(known v1alpha1.APIServiceStatus) bool { return known.Name == name })
}

// find returns the first value that matches, or the zero value.
func find[T any](all []T, match func(T) bool) (found T) {
	if i := slices.IndexFunc(all, match); i >= 0 {
		found = all[i]
	}
	return found
}

// registeredNames returns the names of our APIServices, sorted.
func (s *reconcileState) registeredNames() []string { return slices.Sorted(maps.Keys(s.registered)) }

// requeueNow requeues the backend after a short pause, for concurrent writers.
func (s *reconcileState) requeueNow() { s.outcome.requeueAfter = 20 * time.Millisecond }
