// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// Register registers an API version with serving as its server, and waits until it is
// available.
func (c *ControlPlane) Register(ctx context.Context, s *Server, version schema.GroupVersion) error {
	core, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	all, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	// serverName is SERVICE.NAMESPACE.svc.
	parts := strings.Split(serverName, ".")
	service, namespace := parts[0], parts[1]
	if _, err := core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", namespace, err)
	}
	// Cluster IPs do not work here.
	if _, err := core.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Service %s: %w", service, err)
	}
	name := version.Version + "." + version.Group
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": version.Group, "version": version.Version, "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"service": map[string]any{"namespace": namespace, "name": service, "port": int64(s.Port)},
		},
	}}
	if err := unstructured.SetNestedField(object.Object, base64.StdEncoding.EncodeToString(s.CA), "spec", "caBundle"); err != nil {
		return err
	}
	if _, err := all.Resource(apiServices).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create APIService %s: %w", name, err)
	}
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return core.RESTClient().Get().AbsPath("/apis", version.Group, version.Version).Do(ctx).Error() == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until kube-apiserver serves %s: %w", version, err)
	}
	return nil
}

// Reader returns a client configuration for one of the readers, without a rate limit.
func (c *ControlPlane) Reader(user string) *rest.Config {
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{readers}}
	config.QPS = -1
	return config
}
