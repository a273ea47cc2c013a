// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// clusterPods are pods of a cluster.
type clusterPods struct {
	client           kubernetes.Interface
	namespace, image string
}

// NewPods makes pods of a container image in a namespace of a cluster.
func NewPods(client kubernetes.Interface, namespace, image string) Pods {
	return &clusterPods{client: client, namespace: namespace, image: image}
}

// Create implements Pods. The checks wait for the pod's metrics, so it does not wait
// for the pod.
func (p *clusterPods) Create(ctx context.Context, labels map[string]string) (namespace, name string, err error) {
	pod, err := p.client.CoreV1().Pods(p.namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: labelOfChecks + "-", Labels: labels},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(int64(0)),
			// What a namespace of the policy "restricted" asks for.
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65534)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{Name: "idle", Image: p.image, SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", "", fmt.Errorf("make a pod in namespace %s: %w", p.namespace, err)
	}
	return pod.Namespace, pod.Name, nil
}

// Relabel implements Pods.
func (p *clusterPods) Relabel(ctx context.Context, namespace, name string, to map[string]string) error {
	pod, err := p.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		pod.Labels = labels.Merge(pod.Labels, to)
		_, err = p.client.CoreV1().Pods(namespace).Update(ctx, pod, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) {
		// The kubelet wrote the status in between.
		return p.Relabel(ctx, namespace, name, to)
	}
	if err != nil {
		return fmt.Errorf("change the labels of pod %s/%s: %w", namespace, name, err)
	}
	return nil
}

// Delete implements Pods.
func (p *clusterPods) Delete(ctx context.Context, namespace, name string) error {
	if err := p.client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s/%s: %w", namespace, name, err)
	}
	return nil
}
