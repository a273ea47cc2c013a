// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// probed is one server, and what it answered to a probe.
type probed struct {
	// connection says how it is reached. The token is that of the probe.
	connection servingclient.Pod
	// answer is nil if the server was not probed, or did not answer.
	answer *servingclient.Answer
	err    error
}

// server returns what was answered.
func (p probed) server(name string) lifecycle.Server {
	s := lifecycle.Server{Name: name, Err: p.err}
	if p.answer != nil {
		s.Serves, s.Failing = p.answer.Serves, p.answer.Failing
	}
	return s
}

// chain returns the certificates that the server presented, or nil if unknown.
func (p probed) chain() []*x509.Certificate {
	var untrusted *servingclient.UntrustedError
	switch {
	case errors.As(p.err, &untrusted):
		return untrusted.Chain
	case p.answer != nil:
		return p.answer.Chain
	}
	return nil
}

// pod is a serving pod and its answer.
type pod struct {
	*corev1.Pod
	// current: it belongs to the Deployment's newest revision.
	current bool
	ready   bool
	probed
}

// template returns the hash of the template that the pod was made from.
func (p pod) template() string { return p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] }

// pods are serving pods in the order of their names.
type pods []pod

// ready returns the pods that receive requests.
func (all pods) ready() pods {
	return slices.DeleteFunc(slices.Clone(all), func(p pod) bool { return !p.ready })
}

// server returns the pod as the decisions about versions see it.
func (p pod) server() lifecycle.Server {
	s := p.probed.server(p.describe())
	s.Ready, s.Current, s.Template = p.ready, p.current, p.template()
	if p.DeletionTimestamp != nil {
		s.Ending, s.Deadline = true, p.DeletionTimestamp.Time
	}
	return s
}

// describe returns the pod's name and image.
func (p pod) describe() string { return fmt.Sprintf("pod %s (image %s)", p.Name, imageOf(&p.Spec)) }

// portOf returns the port that the pod listens on. It differs from the spec's while a
// change is rolled out.
func portOf(p *corev1.Pod) int32 {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == manifests.PortName {
				return port.ContainerPort
			}
		}
	}
	return v1alpha1.DefaultServingPort(p.Spec.HostNetwork)
}

// imageOf returns the image of serving: other containers may be injected, before it, too.
func imageOf(spec *corev1.PodSpec) string {
	serving := find(spec.Containers, func(c corev1.Container) bool { return c.Name == manifests.ContainerName })
	return cmp.Or(serving.Image, "unknown")
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

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
		status.CertificateNotAfter = new(metav1.NewTime(s.certificate.NotAfter).Rfc3339Copy())
	}
	status.Pods = nil
	for _, p := range s.rollout.pods[:min(len(s.rollout.pods), v1alpha1.MaxServingPods)] {
		status.Pods = append(status.Pods, s.describePod(p))
	}
}

func (s *reconcileState) describePod(p pod) v1alpha1.ServingPodStatus {
	stored := ptr.Deref(s.storedStatus.Serving, v1alpha1.ServingStatus{}).Pods
	if known := find(stored, func(known v1alpha1.ServingPodStatus) bool { return known.Name == p.Name }); s.probed.transient && known.Name != "" {
		return known
	}
	described := v1alpha1.ServingPodStatus{Name: p.Name, Image: imageOf(&p.Spec), Ready: p.ready, UpToDate: p.current}
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

func describeFailures(failing map[schema.GroupVersion]string) string {
	var messages []string
	for gv, message := range failing {
		messages = append(messages, apiServiceName(gv)+": "+message)
	}
	slices.Sort(messages)
	return strings.Join(messages, "; ")
}
