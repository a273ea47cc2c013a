// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// describeServing sets in the status what each pod serves, and when its certificate
// expires. Administrators could otherwise learn it only by sending a token to each pod.
// It changes only if a pod or the certificate does.
func (s *reconcileState) describeServing() {
	status := s.backend.Status.Serving
	if status == nil {
		return
	}
	status.CertificateNotAfter = nil
	if !s.certificate.NotAfter.IsZero() {
		end := metav1.NewTime(s.certificate.NotAfter).Rfc3339Copy()
		status.CertificateNotAfter = &end
	}
	status.Pods = nil
	for _, p := range s.rollout.pods[:min(len(s.rollout.pods), v1alpha1.MaxServingPods)] {
		status.Pods = append(status.Pods, s.describePod(p))
	}
}

func (s *reconcileState) describePod(p pod) v1alpha1.ServingPodStatus {
	if i := slices.IndexFunc(s.storedPods(), func(known v1alpha1.ServingPodStatus) bool { return known.Name == p.Name }); s.probed.transient && i >= 0 {
		return s.storedPods()[i]
	}
	described := v1alpha1.ServingPodStatus{Name: p.Name, Image: imageOf(p.Pod), Ready: p.ready, UpToDate: p.current}
	switch {
	case p.err != nil:
		described.Message = text.Truncate(fmt.Sprintf("cannot be asked: %v", p.err), maxMessage)
	case p.answer != nil:
		for gv, serves := range p.answer.Serves {
			if serves {
				described.Versions = append(described.Versions, manifests.APIServiceName(gv))
			}
		}
		slices.Sort(described.Versions)
		described.Message = text.Truncate(describeFailures(p.answer.Failing), maxMessage)
	case p.Status.Phase != corev1.PodRunning:
		described.Message = "is not running"
	}
	return described
}

func (s *reconcileState) storedPods() []v1alpha1.ServingPodStatus {
	if s.storedStatus.Serving == nil {
		return nil
	}
	return s.storedStatus.Serving.Pods
}

func describeFailures(failing map[schema.GroupVersion]string) string {
	var messages []string
	for gv, message := range failing {
		messages = append(messages, apiServiceName(gv)+": "+message)
	}
	slices.Sort(messages)
	return strings.Join(messages, "; ")
}
