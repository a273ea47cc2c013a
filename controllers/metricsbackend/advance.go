// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// ownNeeds are the observations of one version. Those of each kube-apiserver's discovery and routing are made after all
// removed versions were written.
var ownNeeds = []lifecycle.Need{
	lifecycle.NeedHolder, lifecycle.NeedComparison, lifecycle.NeedReach, lifecycle.NeedConsumers, lifecycle.NeedPreviousEndpoints,
	lifecycle.NeedSuccessor, lifecycle.NeedPreviousOwner,
}

// advance takes the steps of a version, up to one that changes where its requests go, or one that it waits for; and those of
// one that is removed until only every kube-apiserver has to follow.
func (r *Reconciler) advance(ctx context.Context, s *reconcileState, v *lifecycle.Version) (d lifecycle.Decision, err error) {
	read := v.Retires
	if v.Retires {
		if err := r.readVersion(ctx, s, v); err != nil {
			return d, err
		}
	}
	for {
		d, err = r.decide(ctx, s, v, ownNeeds...)
		if err != nil || d.Action == "" {
			return d, err
		}
		if !read && (v.Live == nil || !v.Identity.HasLabel(v.Live)) {
			// Another owner may have registered it since the reconciliation began.
			if read, err = true, r.readVersion(ctx, s, v); err != nil {
				return d, err
			}
			continue
		}
		if err = r.act(ctx, s, v, d); err != nil || !v.Retires && d.Action != lifecycle.Apply && d.Action != lifecycle.AddAuthority {
			return d, err
		}
	}
}

// observeVersion makes an observation that the decision about a version needs.
func (r *Reconciler) observeVersion(ctx context.Context, s *reconcileState, v *lifecycle.Version, need lifecycle.Need) (err error) {
	switch need {
	case lifecycle.NeedConsumers:
		v.Consumers, err = r.keepForConsumers(ctx, s, v)
	case lifecycle.NeedHolder:
		v.Holder, err = r.observeHolder(ctx, v)
	case lifecycle.NeedComparison:
		r.compare(ctx, s, v, compareBeforeTakeover)
	case lifecycle.NeedReach:
		err = r.observeReach(ctx, s, v)
	case lifecycle.NeedPreviousEndpoints:
		v.PreviousReady, err = r.previousReady(ctx, s, v)
	case lifecycle.NeedSuccessor:
		v.Successor, err = r.successor(ctx, s, v)
	case lifecycle.NeedPreviousOwner:
		v.Previous = r.observePreviousOwner(ctx, s, v)
	case lifecycle.NeedRouting:
		v.Routing, err = r.stillRoutedIfDeployed(ctx, s, v.Name())
	}
	v.Known.Insert(need)
	return err
}

// decide returns what happens to a version next, and makes those of the observations that it needs.
func (r *Reconciler) decide(ctx context.Context, s *reconcileState, v *lifecycle.Version, observations ...lifecycle.Need) (lifecycle.Decision, error) {
	for {
		d := r.next(v)
		if !slices.Contains(observations, d.Needs) {
			return d, nil
		}
		if err := r.observeVersion(ctx, s, v, d.Needs); err != nil {
			return d, err
		}
	}
}

// act does what was decided about a version.
func (r *Reconciler) act(ctx context.Context, s *reconcileState, v *lifecycle.Version, d lifecycle.Decision) (err error) {
	if d.Event != "" {
		klog.FromContext(ctx).Info("An APIService is not handed back", "apiService", v.Name(), "why", d.Note)
		r.Events.Eventf(s.backend, v.Live, corev1.EventTypeWarning, d.Event, "Retire", "%s", text.Truncate(d.Note, maxNote))
	}
	switch d.Action {
	case lifecycle.Register:
		klog.FromContext(ctx).Info("Registering APIService", "apiService", v.Name())
		s.startTrial(v.Name())
		return r.apply(ctx, s, v, d.State == lifecycle.Trial)
	case lifecycle.Apply:
		err = r.apply(ctx, s, v, lifecycle.IsUnverified(v.Live))
	case lifecycle.Move:
		err = r.adoptAPIService(ctx, s, v, d)
	case lifecycle.AddAuthority:
		return r.addAuthority(ctx, s, v)
	case lifecycle.EndTrial:
		return r.endTrial(ctx, s, v.Live)
	case lifecycle.Disown:
		err = r.disown(ctx, s, v.Live)
	case lifecycle.HandBack:
		err = r.handBack(ctx, s, v.Live)
		if apierrors.IsForbidden(err) {
			// Only another release of the operator may write this version. Any may be
			// deleted, and one that stays would block everything else.
			v.Refused = err
			return nil
		}
	case lifecycle.Delete:
		klog.FromContext(ctx).Info("Deleting APIService", "apiService", v.Name())
		s.history.streaks.Reset(stateKey{state: previousOwnerFailing, name: v.Name()})
		err = r.Client.Delete(ctx, v.Live, client.Preconditions{UID: ptr.To(v.Live.UID), ResourceVersion: ptr.To(v.Live.ResourceVersion)})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete APIService %s: %w", v.Name(), err)
		}
		err, v.Deleted = nil, true
	}
	switch {
	case err != nil:
		return err
	case d.Action == lifecycle.Apply, d.Action == lifecycle.Move:
		s.countWrite(v)
		v.Applied = true
		return nil
	}
	return r.readVersion(ctx, s, v)
}

// readVersion reads the APIService of a version.
func (r *Reconciler) readVersion(ctx context.Context, s *reconcileState, v *lifecycle.Version) error {
	live := &apiregistrationv1.APIService{}
	switch err := r.APIReader.Get(ctx, client.ObjectKey{Name: v.Name()}, live); {
	case apierrors.IsNotFound(err):
		live = nil
		delete(s.history.contests, v.Name())
	case err != nil:
		return fmt.Errorf("get APIService %s: %w", v.Name(), err)
	}
	s.setLive(v, live)
	return nil
}

// recordDecision keeps what a decision says of the whole reconciliation.
func (s *reconcileState) recordDecision(v *lifecycle.Version, d lifecycle.Decision) {
	if d.Recheck > 0 {
		s.requeueWithin(d.Recheck)
	}
	if d.Reason != "" && !d.Blocks {
		s.addConflict(v.GV, d.Reason, d.Waits)
	}
	if d.State == lifecycle.Contested {
		if !v.Contest.Paused(s.now) {
			s.history.streaks.Reset(stateKey{state: adoptionFailing, name: v.Name()})
		}
		v.StopContest()
	}
}

// countWrite counts a write of an existing APIService against the field manager that changed it. The first write of one that
// was not ours is against nobody.
func (s *reconcileState) countWrite(v *lifecycle.Version) {
	c := s.contest(v.Name())
	manager, contested := v.Identity.ConflictingManager(v.Live)
	switch {
	case contested && (c.Written || v.Identity.HasLabel(v.Live)):
		c.Count(manager, s.now)
	case !contested && c.Over(s.now):
		delete(s.history.contests, v.Name())
	}
	c.Written, c.AuthorityAdded = true, false
}
