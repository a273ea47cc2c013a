// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adoption finds out whether every kube-apiserver reaches the serving pods,
// before someone else's APIService is pointed to them. The operator's own requests to the
// pods take another path through the network.
package adoption

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

const (
	// canaryLifetime bounds how long the canary API is registered: while an APIService
	// is unavailable, no namespace of the cluster can be deleted.
	canaryLifetime = 30 * time.Second
	// canaryPoll is how often the canary API is requested.
	canaryPoll = time.Second
	// passedFor is how long a passed check is valid.
	passedFor = time.Minute
	// readyzPause is the time between two requests to /readyz while they fail. They
	// change nothing in the cluster.
	readyzPause = 30 * time.Second
)

// Requester sends requests to every kube-apiserver. Its errors are an APIStatus if
// kube-apiserver answered.
type Requester interface {
	Answers(ctx context.Context, path string) error
}

// Checker checks whether kube-apiservers reach serving pods.
type Checker struct {
	Client client.Client
	// APIReader reads around the cache.
	APIReader client.Reader
	Requester Requester
	Clock     clock.PassiveClock
	// own is the UID of the last canary API that this process registered, or nil.
	own atomic.Pointer[types.UID]
}

// Input is what is checked.
type Input struct {
	// Serving are the pods, and Target is their Service.
	Serving manifests.Serving
	Target  manifests.Target
	// Canary is the live APIService of the canary API, or nil.
	Canary *apiregistrationv1.APIService
	Now    time.Time
}

// Check does one step of a check. First /readyz of the Service is requested through
// kube-apiserver's own proxy, which changes nothing in the cluster. If that succeeds, the
// canary API is registered until a request to it succeeds. A success implies that the
// aggregator reports it available: it sends no request otherwise. If it fails, the state is
// paused, and the result says nothing.
func (c *Checker) Check(ctx context.Context, in Input, state *State) (lifecycle.Reach, error) {
	age := in.Now.Sub(state.canarySince)
	if age >= 2*canaryLifetime || age < canaryLifetime && in.Canary == nil {
		// Given up, since the conditions of a takeover did not hold any more; or someone
		// deleted it, and only another one could answer.
		state.canarySince = time.Time{}
	}
	switch {
	case !state.passed.IsZero() && in.Now.Sub(state.passed) < passedFor:
		return lifecycle.Reach{Reached: true}, nil
	case in.Canary != nil && in.Canary.Labels[v1alpha1.LabelCanary] != in.Serving.Backend:
		// There is one name for all: another MetricsBackend's check comes first.
		state.canarySince = time.Time{}
		return lifecycle.Reach{RetryAfter: canaryPoll}, nil
	case state.canarySince.IsZero():
		return c.start(ctx, in, state)
	case age < canaryLifetime:
		path := fmt.Sprintf("/apis/%s/%s/%s/%s", v1alpha1.CanaryGroup, v1alpha1.CanaryVersion, v1alpha1.CanaryResource, in.Serving.Backend)
		if state.lastError = c.Requester.Answers(ctx, path); state.lastError != nil {
			return lifecycle.Reach{RetryAfter: canaryPoll}, nil //nolint:nilerr // kept in state
		}
	}
	if in.Canary != nil {
		if err := c.delete(ctx, in.Canary.UID); err != nil {
			return lifecycle.Reach{}, err
		}
	}
	state.canarySince = time.Time{}
	switch {
	case errors.Is(state.lastError, errNotRequested):
		return lifecycle.Reach{RetryAfter: canaryPoll}, nil
	case state.lastError != nil:
		state.Fail(in.Now, failure(in, state.lastError))
		return lifecycle.Reach{}, nil //nolint:nilerr // kept in state
	}
	state.passed = in.Now
	return lifecycle.Reach{Reached: true}, nil
}

// start requests /readyz, and registers the canary API if that succeeds.
func (c *Checker) start(ctx context.Context, in Input, state *State) (lifecycle.Reach, error) {
	switch err := c.Requester.Answers(ctx, ReadyzPath(in.Target.Namespace, in.Target.Name)); {
	case apierrors.IsForbidden(err):
		// The permission is for one Service by name. The canary API shows the same, later.
		klog.FromContext(ctx).Info("Cannot request /readyz of the Service through kube-apiserver without a permission, see config/rbac/serving-namespace", "service", in.Target.String(), "err", err)
	case err != nil:
		state.pause(in.Now, readyzPause, failure(in, err))
		return lifecycle.Reach{}, nil
	}
	klog.FromContext(ctx).Info("Registering the canary API before an APIService is taken over", "service", in.Target.String())
	canary := manifests.CanaryAPIService(in.Serving, in.Target)
	// No create: RBAC cannot limit that to a name. An owner for each MetricsBackend, without
	// force, so that the apply conflicts with the label of another one.
	switch err := c.Client.Apply(ctx, canary, client.FieldOwner(v1alpha1.FieldOwner+"/"+in.Serving.Backend)); {
	case apierrors.IsConflict(err):
		return lifecycle.Reach{RetryAfter: canaryPoll}, nil
	case err != nil:
		return lifecycle.Reach{}, fmt.Errorf("register the canary API: %w", err)
	}
	c.own.Store(canary.UID)
	state.canarySince, state.lastError = in.Now, errNotRequested
	return lifecycle.Reach{RetryAfter: canaryPoll}, nil
}

// Expire deletes the APIService of the canary API if its time is over, or if a process
// that has ended left it. It returns how long it may still exist, or 0.
func (c *Checker) Expire(ctx context.Context, canary *apiregistrationv1.APIService, backend string, state *State, now time.Time) (time.Duration, error) {
	since := state.canarySince
	if canary.Labels[v1alpha1.LabelCanary] != backend {
		// The other MetricsBackend deletes it earlier, unless it is gone.
		since = canary.CreationTimestamp.Add(canaryLifetime)
	}
	if left := canaryLifetime - now.Sub(since); left > 0 {
		return left, nil
	}
	return 0, c.delete(ctx, canary.UID)
}

// Remove deletes the APIService of the canary API if it is that of the backend.
func (c *Checker) Remove(ctx context.Context, canary *apiregistrationv1.APIService, backend string, state *State) error {
	if canary == nil || canary.Labels[v1alpha1.LabelCanary] != backend {
		return nil
	}
	state.canarySince = time.Time{}
	return c.delete(ctx, canary.UID)
}

// delete deletes the APIService of the canary API if it has the UID, and so none that was
// created later.
func (c *Checker) delete(ctx context.Context, uid types.UID) error {
	canary := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: manifests.CanaryAPIServiceName}}
	err := c.Client.Delete(ctx, canary, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the canary API: %w", err)
	}
	return nil
}

// ReadyzPath returns the path at which kube-apiserver proxies to /readyz of the Service
// of serving pods. It does not pass the client's credentials on.
func ReadyzPath(namespace, name string) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/services/https:%s:%s/proxy/readyz", namespace, name, manifests.PortName)
}

// Unavailable returns the aggregator's condition of an APIService, which may be nil, if it
// is unavailable.
func Unavailable(service *apiregistrationv1.APIService) *apiregistrationv1.APIServiceCondition {
	if service == nil || helper.IsAPIServiceConditionTrue(service, apiregistrationv1.Available) {
		return nil
	}
	return helper.GetAPIServiceConditionByType(service, apiregistrationv1.Available)
}

// Describe returns the message of a request that failed, and what the aggregator says of
// its APIService, which knows more than the client that it rejects. See StableMessage.
func Describe(message string, service *apiregistrationv1.APIService) string {
	if why := Unavailable(service); why != nil {
		message += fmt.Sprintf(" (%s: %s)", why.Reason, why.Message)
	}
	return StableMessage(message)
}

// failure says that the pods do not answer, and what to open if the way may be closed.
func failure(in Input, err error) lifecycle.Pause {
	described := Describe(err.Error(), in.Canary)
	message := fmt.Sprintf("requests to the pods of Service %s through kube-apiserver fail: %s", in.Target, described)
	if isUnreachable(err, in.Canary) {
		message = fmt.Sprintf("kube-apiserver does not reach the pods of Service %s: %s; %s",
			in.Target, described, v1alpha1.RequiredConnections(in.Serving.Spec.Endpoints()))
	}
	return lifecycle.Pause{Reason: v1alpha1.ReasonPodsUnreachable, Message: message + ". Until they answer, the APIServices of others stay as they are"}
}

// isUnreachable reports whether a failed request may not have reached the pods.
func isUnreachable(err error, canary *apiregistrationv1.APIService) bool {
	if why := Unavailable(canary); why != nil {
		return v1alpha1.IsUnreachable(why.Reason, why.Message)
	}
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) || answer.Status().Code == http.StatusServiceUnavailable
}

// StableMessage returns a message without addresses and ports, which differ between equal
// failures.
func StableMessage(message string) string {
	words := strings.Fields(message)
	kept := words[:0]
	for _, word := range words {
		bare := strings.TrimRight(word, ":")
		// Of an established connection: LOCAL->REMOTE.
		_, remote, found := strings.Cut(bare, "->")
		if !found {
			remote = bare
		}
		if _, err := netip.ParseAddrPort(remote); err == nil && len(kept) > 0 {
			kept[len(kept)-1] += word[len(bare):]
			continue
		}
		kept = append(kept, word)
	}
	return strings.Join(kept, " ")
}
