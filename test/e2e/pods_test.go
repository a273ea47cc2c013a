// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// eachPod calls ask with a client of each serving pod, without kube-apiserver in between, and returns the first error.
// What one replica knows, as a new rule or a new pod's rate, another may know seconds later; a question that must hold
// on every replica is asked of each.
func eachPod(ctx context.Context, ask func(client rest.Interface) error) error {
	var pods corev1.PodList
	if err := suite.client.List(ctx, &pods, serving()...); err != nil {
		return err
	}
	if len(pods.Items) == 0 {
		return errors.New("there is no serving pod")
	}
	services, err := apiServices(ctx)
	if err != nil {
		return err
	}
	if len(services) == 0 {
		return errors.New("there is no APIService whose CA the pods could be verified with")
	}
	service := services[0].Spec
	for i := range pods.Items {
		pod := &pods.Items[i]
		config := rest.CopyConfig(suite.config)
		config.Host = "https://" + podAddress(pod)
		// The administrator's certificate is good for the pod, too.
		config.TLSClientConfig = rest.TLSClientConfig{
			CAData: service.CABundle, ServerName: service.Service.Name + "." + service.Service.Namespace + ".svc",
			CertData: config.CertData, CertFile: config.CertFile, KeyData: config.KeyData, KeyFile: config.KeyFile,
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		if err := ask(client.CoreV1().RESTClient()); err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// podAddress is where a serving pod listens, IP:PORT.
func podAddress(pod *corev1.Pod) string {
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(pod.Spec.Containers[0].Ports[0].ContainerPort)))
}
