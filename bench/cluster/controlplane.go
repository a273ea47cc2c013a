// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster starts the environment of a load test on loopback: a real
// kube-apiserver and etcd, and the real serving component or another implementation as a
// separate process, so that the kernel measures its cost.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/metricsbackend/metrics-backend-operator/test/authority"
)

// AssetsVariable names the folder with kube-apiserver and etcd.
const AssetsVariable = "KUBEBUILDER_ASSETS"

const (
	// readers is the group of users who may read metrics.
	readers = "load:readers"
	// servingAccount, in servingNamespace, has exactly the permissions that the operator
	// grants.
	servingAccount, servingNamespace = "load-serving", metav1.NamespaceDefault
	// proxyName is the front proxy's name, in its certificate.
	proxyName = "front-proxy-client"
	// proxyCAName is the name of its CA. It needs a separate one, or any client certificate
	// could impersonate any user.
	proxyCAName = "front-proxy-ca"
	// Headers in which the front proxy sends the user.
	userHeader, groupHeader, extraHeaders = "X-Remote-User", "X-Remote-Group", "X-Remote-Extra-"
	// startTimeout is enough for a machine that also compiles.
	startTimeout = 2 * time.Minute
	// tokenLifetime is longer than any load runs.
	tokenLifetime = 24 * time.Hour
)

// ControlPlane is a kube-apiserver and its etcd, or a stand-in.
type ControlPlane struct {
	// Config has an administrator's credentials. Those of a stand-in only read.
	Config *rest.Config

	stop   func() error
	folder string
	proxy  *authority.Authority
	// kubeconfig is the file for serving.
	kubeconfig string
}

// StartControlPlane starts kube-apiserver and etcd, with their files in a folder.
func StartControlPlane(ctx context.Context, folder string) (*ControlPlane, error) {
	assets := os.Getenv(AssetsVariable)
	if assets == "" {
		return nil, fmt.Errorf("%s is not set: it names the folder with kube-apiserver and etcd. "+
			"The targets of the Makefile build them and set it", AssetsVariable)
	}
	proxy, err := authority.New(proxyCAName)
	if err != nil {
		return nil, err
	}
	ca := filepath.Join(folder, "front-proxy-ca.crt")
	if err := os.WriteFile(ca, proxy.PEM, 0o600); err != nil {
		return nil, fmt.Errorf("write the front proxy's CA: %w", err)
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory:    assets,
		ControlPlaneStartTimeout: startTimeout, ControlPlaneStopTimeout: time.Minute,
		CRDDirectoryPaths: []string{filepath.FromSlash("../config/crd/bases")}, ErrorIfCRDPathMissing: true,
	}
	client, err := proxy.Issue(proxyName, nil)
	if err != nil {
		return nil, err
	}
	proxyCert, proxyKey, err := client.Write(folder, "front-proxy")
	if err != nil {
		return nil, fmt.Errorf("write the front proxy's certificate: %w", err)
	}
	log, err := os.Create(filepath.Join(folder, "kube-apiserver.log"))
	if err != nil {
		return nil, fmt.Errorf("create kube-apiserver's log: %w", err)
	}
	server := env.ControlPlane.GetAPIServer()
	server.Out, server.Err = log, log
	server.Configure().
		Set("requestheader-client-ca-file", ca).
		Set("requestheader-allowed-names", proxyName).
		Set("proxy-client-cert-file", proxyCert).Set("proxy-client-key-file", proxyKey).
		Set("requestheader-username-headers", userHeader).
		Set("requestheader-group-headers", groupHeader).
		Set("requestheader-extra-headers-prefix", extraHeaders).
		// Clients share a few connections.
		Set("http2-max-streams-per-connection", "1000").
		// Tens of thousands of pods are written at once.
		Set("max-requests-inflight", "4000").Set("max-mutating-requests-inflight", "2000")
	c := &ControlPlane{stop: env.Stop, folder: folder, proxy: proxy}
	if c.Config, err = env.Start(); err != nil {
		return nil, fmt.Errorf("start kube-apiserver and etcd: %w", err)
	}
	if err := c.prepare(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Stop stops it.
func (c *ControlPlane) Stop() error {
	if err := c.stop(); err != nil {
		return fmt.Errorf("stop the control plane: %w", err)
	}
	return nil
}

// prepare creates serving's account and the readers' permissions.
func (c *ControlPlane) prepare(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := c.writeKubeconfig(ctx, client); err != nil {
		return fmt.Errorf("make serving's kubeconfig: %w", err)
	}
	read := []string{"get", "list", "watch"}
	for name, rules := range map[string][]rbacv1.PolicyRule{
		servingAccount: {
			{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: read},
			{APIGroups: []string{""}, Resources: []string{"nodes/metrics"}, Verbs: []string{"get"}},
			{APIGroups: []string{"metricsbackend.io"}, Resources: []string{"custommetrics", "externalmetrics", "externalmetricspolicies"}, Verbs: read},
		},
		readers: {
			{APIGroups: []string{"metrics.k8s.io"}, Resources: []string{"nodes", "pods"}, Verbs: read},
			{APIGroups: []string{"custom.metrics.k8s.io", "external.metrics.k8s.io"}, Resources: []string{"*"}, Verbs: read},
		},
	} {
		if _, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create ClusterRole %s: %w", name, err)
		}
	}
	asServing := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: servingNamespace, Name: servingAccount}
	asReaders := rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: readers}
	for role, subject := range map[string]rbacv1.Subject{servingAccount: asServing, "system:auth-delegator": asServing, readers: asReaders} {
		if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "load-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{subject},
		}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("bind %s to ClusterRole %s: %w", subject.Name, role, err)
		}
	}
	if _, err := client.RbacV1().RoleBindings(metav1.NamespaceSystem).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "load-serving"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"},
		Subjects:   []rbacv1.Subject{asServing},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("let serving read how requests are authenticated: %w", err)
	}
	return nil
}

// writeKubeconfig writes serving's kubeconfig with a token, which kubelets require.
func (c *ControlPlane) writeKubeconfig(ctx context.Context, client kubernetes.Interface) error {
	accounts := client.CoreV1().ServiceAccounts(servingNamespace)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: servingAccount}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	token, err := accounts.CreateToken(ctx, servingAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds()))},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return c.writeToken(token.Status.Token)
}

// writeToken writes serving's kubeconfig.
func (c *ControlPlane) writeToken(token string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	c.kubeconfig = filepath.Join(c.folder, "serving.kubeconfig")
	return clientcmd.WriteToFile(*config, c.kubeconfig)
}
