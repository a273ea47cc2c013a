// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// isTheirs tells whether an APIService that still has our label is someone else's
// by what it says: they have led it to a Service that is neither ours nor that of
// spec.existing. An apply leaves the labels of others as they are.
func (s *scope) isTheirs(live *apiregistrationv1.APIService) bool {
	if s.leadsToServing(live) || !s.deploys() && leadsTo(live, s.target()) {
		return false
	}
	for _, field := range [][]string{serviceNamespaceField, serviceNameField} {
		if _, changed := changedBy(live, field); changed {
			return true
		}
	}
	return false
}

// giveUp leaves an APIService to whoever leads it elsewhere, with everything that
// they wrote: to delete it, or to restore what was there before the takeover, would
// undo their work. Only what is the operator's own goes.
func (r *Reconciler) giveUp(ctx context.Context, s *scope, live *apiregistrationv1.APIService) error {
	updated := live.DeepCopy()
	delete(updated.Annotations, v1alpha1.AnnotationPreviousOwner)
	for key, value := range s.serving.Labels() {
		maps.DeleteFunc(updated.Labels, func(k, v string) bool { return k == key && v == value })
	}
	klog.FromContext(ctx).Info("Leaving an APIService to those who lead it elsewhere", "apiService", live.Name, "service", whereTo(live))
	// With the resourceVersion that was read: nobody's change in between is lost.
	if err := r.Client.Update(ctx, updated, client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return fmt.Errorf("take the operator's labels off APIService %s: %w", live.Name, err)
	}
	r.Events.Eventf(s.backend, live, corev1.EventTypeNormal, "VersionLeft", "Retire", "%s",
		text.Truncate(fmt.Sprintf("left APIService %s to those who led it to %s", live.Name, whereTo(live)), maxNote))
	return nil
}
