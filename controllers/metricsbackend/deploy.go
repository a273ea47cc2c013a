// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// deploy applies every object that serving pods need, the Deployment last, and
// removes what the spec no longer asks for.
func (r *Reconciler) deploy(ctx context.Context, s *scope) error {
	if !s.deploys() {
		return nil // what was deployed before goes last, see undeploy
	}
	account, err := r.applier.Apply(ctx, s.backend.Name, manifests.ServiceAccount(s.serving))
	if err != nil {
		return err
	}
	s.serving.AccountUID = account.UID
	if s.spec.Serving.NetworkPolicy == v1alpha1.NetworkPolicyRestricted {
		// Without its own port, serving would be cut off from kube-apiserver.
		if s.serving.APIServerPorts, err = r.Aggregator.Ports(ctx); err != nil {
			return fmt.Errorf("read the ports of kube-apiservers for the NetworkPolicy: %w", err)
		}
	}
	objects := manifests.All(s.serving)
	for _, object := range objects {
		applied, err := r.applier.Apply(ctx, s.backend.Name, object)
		if err != nil {
			return err
		}
		// The Deployment is the last one.
		s.applied = applied.Generation
	}
	admission, err := r.admission(ctx, s)
	if err != nil {
		return err
	}
	keep := slices.Concat(objects, admission, s.certificateSecrets(), []manifests.Object{manifests.GuestServiceAccount(s.serving)})
	return r.applier.Prune(ctx, s.backend.Name, s.serving.Namespace, keep)
}
