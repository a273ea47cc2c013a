//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	// servingNamespace holds serving's Service and account.
	servingNamespace = "metrics-backend"
	// servingAccount has the permissions that the operator grants, no others.
	servingAccount = "serving"
	// scrapeAccount is the account whose token kubelets get.
	scrapeAccount = "serving-scrape"
	// workloads is the namespace of the pods.
	workloads = "default"
)

// createFoundation makes what all tests share: the account of serving with its
// permissions, and accounts with and without access.
func createFoundation(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: servingNamespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, name := range []string{servingAccount, scrapeAccount, "reader", "profiler", "nobody"} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().ServiceAccounts(servingNamespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	watch := []string{"get", "list", "watch"}
	if err := grantCluster(ctx, client, servingAccount, "serving",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: watch},
		rbacv1.PolicyRule{APIGroups: []string{"metricsbackend.io"}, Resources: []string{"metricsbackends", "custommetrics", "externalmetrics", "externalmetricspolicies"}, Verbs: watch},
		rbacv1.PolicyRule{APIGroups: []string{"apiregistration.k8s.io"}, Resources: []string{"apiservices"}, Verbs: []string{"list"}},
		rbacv1.PolicyRule{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list"}},
	); err != nil {
		return err
	}
	if err := bindCluster(ctx, client, servingAccount, "system:auth-delegator"); err != nil {
		return err
	}
	if err := grantCluster(ctx, client, scrapeAccount, "scrape",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}},
	); err != nil {
		return err
	}
	if err := grantToken(ctx, client, scrapeAccount); err != nil {
		return err
	}
	if err := bind(ctx, client, metav1.NamespaceSystem, "Role", "extension-apiserver-authentication-reader", serviceAccount(servingAccount)); err != nil {
		return err
	}
	if err := grantSecret(ctx, client, "prometheus"); err != nil {
		return err
	}
	// It may have the garbage collected, so that the metrics tell of what is in use.
	if err := grantCluster(ctx, client, "profiler", "profiler",
		rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics", heapProfile}, Verbs: []string{"get"}},
	); err != nil {
		return err
	}
	return grantCluster(ctx, client, "reader", "metrics-reader",
		rbacv1.PolicyRule{APIGroups: []string{"metrics.k8s.io"}, Resources: []string{"nodes", "pods"}, Verbs: watch},
		rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics", v1alpha1.SourcesPath, v1alpha1.DeclaredPath, "/readyz/*"}, Verbs: []string{"get"}},
	)
}

func grantCluster(ctx context.Context, client kubernetes.Interface, account, role string, rules ...rbacv1.PolicyRule) error {
	object := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	return bindCluster(ctx, client, account, role)
}

func bindCluster(ctx context.Context, client kubernetes.Interface, account, role string) error {
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{serviceAccount(account)},
	}, metav1.CreateOptions{})
	return err
}

// bind grants a role in a namespace; kind is Role or ClusterRole.
func bind(ctx context.Context, client kubernetes.Interface, namespace, kind, role string, subject rbacv1.Subject) error {
	_, err := client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}, metav1.CreateOptions{})
	return err
}

// serviceAccount is a subject in servingNamespace.
func serviceAccount(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: servingNamespace, Name: name}
}

// grantSecret lets serving read one Secret beside it, as it may those of its sources.
func grantSecret(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.RbacV1().Roles(servingNamespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "credentials-" + name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name}, Verbs: []string{"get", "list", "watch"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return bind(ctx, client, servingNamespace, "Role", "credentials-"+name, serviceAccount(servingAccount))
}

// grantToken lets serving request tokens of one account beside it.
func grantToken(ctx context.Context, client kubernetes.Interface, account string) error {
	name := "token-of-" + account
	_, err := client.RbacV1().Roles(servingNamespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{account}, Verbs: []string{"create"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return bind(ctx, client, servingNamespace, "Role", name, serviceAccount(servingAccount))
}

// token returns a token of an account in servingNamespace.
func (c *controlPlane) token(t *testing.T, account string) string {
	t.Helper()
	answer, err := c.client.CoreV1().ServiceAccounts(servingNamespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("ask for a token of %s: %v", account, err)
	}
	return answer.Status.Token
}

// createNode makes a Node whose kubelet listens on the given port of loopback.
func (c *controlPlane) createNode(t *testing.T, name string, port int32, labels map[string]string) {
	t.Helper()
	node, err := c.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create Node %s: %v", name, err)
	}
	t.Cleanup(func() { c.delete(t, "nodes", "", name) })
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status = corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		NodeInfo:        corev1.NodeSystemInfo{Swap: &corev1.NodeSwapStatus{Capacity: ptr.To[int64](1 << 30)}},
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
	}
	if _, err := c.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("write the status of Node %s: %v", name, err)
	}
}

// createPod makes a pod on a node; nothing runs it.
func (c *controlPlane) createPod(t *testing.T, node, name string, labels map[string]string, containers ...string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](0)},
	}
	for _, container := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: container, Image: "none"})
	}
	if _, err := c.client.CoreV1().Pods(workloads).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create pod %s: %v", name, err)
	}
	t.Cleanup(func() { c.delete(t, "pods", workloads, name) })
}

// register makes a Service that points to a port of this machine, and an
// APIService for each version. The aggregator follows an ExternalName, which
// may be loopback; endpoints may not.
func (c *controlPlane) register(t *testing.T, service string, port int32, versions ...string) {
	t.Helper()
	_, err := c.client.CoreV1().Services(servingNamespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create Service %s: %v", service, err)
	}
	t.Cleanup(func() { c.delete(t, "services", servingNamespace, service) })
	for i, version := range versions {
		c.createAPIService(t, service, port, metricsVersion(version), int32(100-i))
	}
}

// registerBoth registers both versions of metrics.k8s.io, and waits until requests for them
// are answered through kube-apiserver and discovery has them: its handlers and its discovery
// follow an APIService a moment after its status does.
func (c *controlPlane) registerBoth(t *testing.T, service string, port int32) {
	t.Helper()
	c.register(t, service, port, "v1", "v1beta1")
	for _, version := range []string{"v1", "v1beta1"} {
		c.waitAvailable(t, metricsVersion(version))
		outcome.Eventually(t, time.Minute, version+" answers", func(context.Context) error {
			_, err := raw(t.Context(), "/apis/metrics.k8s.io/"+version+"/nodes")
			return err
		})
	}
	waitDiscovered(t, c.config)
}

// waitDiscovered waits until a client reads discovery completely. Until kube-apiserver has fetched that of a new
// APIService it serves the version as stale, and kubectl knows none of its resources.
func waitDiscovered(t *testing.T, config *rest.Config) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatalf("make a client for discovery: %v", err)
	}
	outcome.Eventually(t, time.Minute, "discovery is complete", func(context.Context) error {
		_, err := client.ServerPreferredResources()
		return err
	})
}

func metricsVersion(version string) schema.GroupVersion {
	return schema.GroupVersion{Group: "metrics.k8s.io", Version: version}
}

func apiServiceName(version schema.GroupVersion) string { return version.Version + "." + version.Group }

func (c *controlPlane) createAPIService(t *testing.T, service string, port int32, version schema.GroupVersion, priority int32) {
	t.Helper()
	name := apiServiceName(version)
	_, err := c.aggregator.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelBackend: service}},
		Spec: apiregistrationv1.APIServiceSpec{
			Service:              &apiregistrationv1.ServiceReference{Namespace: servingNamespace, Name: service, Port: &port},
			Group:                version.Group,
			Version:              version.Version,
			CABundle:             c.servingCA.PEM,
			GroupPriorityMinimum: 100,
			VersionPriority:      priority,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create APIService %s: %v", name, err)
	}
	t.Cleanup(func() { c.deleteAPIService(t, name) })
}

func (c *controlPlane) deleteAPIService(t *testing.T, name string) {
	t.Helper()
	err := c.aggregator.ApiregistrationV1().APIServices().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("delete APIService %s: %v", name, err)
	}
}

// waitAvailable waits until APIServices are available.
func (c *controlPlane) waitAvailable(t *testing.T, versions ...schema.GroupVersion) {
	t.Helper()
	for _, version := range versions {
		outcome.Eventually(t, time.Minute, "APIService "+apiServiceName(version)+" becomes available", func(context.Context) error {
			return c.available(t.Context(), version)
		})
	}
}

func (c *controlPlane) available(ctx context.Context, version schema.GroupVersion) error {
	service, err := c.aggregator.ApiregistrationV1().APIServices().Get(ctx, apiServiceName(version), metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range service.Status.Conditions {
		if condition.Type == apiregistrationv1.Available && condition.Status == apiregistrationv1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("APIService %s: %+v", service.Name, service.Status.Conditions)
}

func (c *controlPlane) delete(t *testing.T, resource, namespace, name string) {
	t.Helper()
	request := c.client.CoreV1().RESTClient().Delete().Resource(resource).Name(name)
	if namespace != "" {
		request = request.Namespace(namespace)
	}
	// The test's own context has ended when its cleanup runs.
	if err := request.Do(context.WithoutCancel(t.Context())).Error(); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("delete %s %s: %v", resource, name, err)
	}
}
