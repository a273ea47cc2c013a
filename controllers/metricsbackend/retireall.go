// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// retireAllPause is the time between two attempts of RetireAll.
const retireAllPause = 100 * time.Millisecond

// RetireAll retires every APIService that points to serving pods in the operator's own
// namespace, without the order that a single backend keeps; not those of backends that
// another operator manages. It is for an operator that stops because that namespace is
// being deleted, with all pods in it: an APIService without pods blocks the deletion of
// every namespace in the cluster. Adopted ones are restored if the previous owner has ready
// endpoints; all others are deleted. It continues after errors, retries until none is left
// or ctx ends, and then returns the error of the last attempt.
func (r *Reconciler) RetireAll(ctx context.Context) error {
	var failed error
	_ = wait.PollUntilContextCancel(ctx, retireAllPause, true, func(ctx context.Context) (bool, error) {
		err := r.retireAllOnce(ctx)
		if err == nil || failed == nil || ctx.Err() == nil {
			// An error that ctx caused is less useful than the one before.
			failed = err
		}
		return err == nil, nil
	})
	return failed
}

func (r *Reconciler) retireAllOnce(ctx context.Context) error {
	var list v1alpha1.MetricsBackendList
	if err := r.APIReader.List(ctx, &list); err != nil {
		return fmt.Errorf("list MetricsBackends: %w", err)
	}
	var errs []error
	for i := range list.Items {
		s := r.newState(&list.Items[i])
		if owner := s.storedStatus.Installation.Namespace; s.serving.Namespace != r.Namespace || owner != "" && owner != r.Namespace {
			continue // its pods, or its operator, are elsewhere
		}
		if err := r.observe(ctx, s); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := r.adoptionChecker.Remove(ctx, s.canary, s.backend.Name, &s.history.adoption); err != nil {
			errs = append(errs, err)
		}
		// Nothing can be created in a terminating namespace.
		s.namespace.gone = true
		for _, name := range s.registeredNames() {
			if !s.ours().PointsToPods(s.registered[name]) {
				continue // its target stays
			}
			gv, _ := manifests.VersionOf(name)
			d, err := r.advance(ctx, s, &lifecycle.Version{GV: gv, Name: name, Ours: s.ours(), Retires: true, Successor: new(string)})
			switch {
			case err != nil:
				errs = append(errs, err)
			case d.Waits != "":
				errs = append(errs, errors.New(d.Waits))
			}
		}
	}
	return errors.Join(errs...)
}
