// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"
)

// serviceName and serviceNamespace are those of serverName, for which kube-apiserver verifies the certificate.
const serviceName, serviceNamespace = "serving", "load"

// Register makes kube-apiserver pass the requests for API versions on to the server, and
// waits until it is available there. A server that was registered earlier is replaced.
func (c *ControlPlane) Register(ctx context.Context, s *Server, versions ...schema.GroupVersion) error {
	_, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return err
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	registrations, err := aggregator.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("make a client of APIServices: %w", err)
	}
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: serviceNamespace}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", serviceNamespace, err)
	}
	// The aggregator follows an ExternalName to loopback, where endpoints may not be.
	if _, err := client.CoreV1().Services(serviceNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Service %s/%s: %w", serviceNamespace, serviceName, err)
	}
	services := registrations.ApiregistrationV1().APIServices()
	for i, version := range versions {
		name := version.Version + "." + version.Group
		if _, err := services.Create(ctx, &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: apiregistrationv1.APIServiceSpec{
				Service:  &apiregistrationv1.ServiceReference{Namespace: serviceNamespace, Name: serviceName, Port: ptr.To(int32(number))},
				CABundle: s.ca, Group: version.Group, Version: version.Version,
				GroupPriorityMinimum: 100, VersionPriority: int32(100 - i),
			},
		}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create APIService %s: %w", name, err)
		}
		// Requests are passed on a moment after the status says so.
		path := "/apis/" + version.String()
		var last error
		if err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			last = client.CoreV1().RESTClient().Get().AbsPath(path).Do(ctx).Error()
			return last == nil, nil
		}); err != nil {
			return fmt.Errorf("wait until kube-apiserver passes on requests for %s: %w", path, errors.Join(err, last))
		}
	}
	return nil
}

// Clients are accounts that may read metrics through kube-apiserver.
type Clients struct {
	// Address is kube-apiserver's, and TLS verifies its certificate.
	Address string
	TLS     *tls.Config
	// Tokens by the name of the account.
	Tokens map[string]string
}

// NewClients creates accounts with names, which must be those of objects.
func (c *ControlPlane) NewClients(ctx context.Context, names ...string) (*Clients, error) {
	address, err := url.Parse(c.Config.Host)
	if err != nil {
		return nil, fmt.Errorf("parse kube-apiserver's address: %w", err)
	}
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Config.CAData)
	clients := &Clients{
		Address: address.Host, Tokens: map[string]string{},
		TLS: &tls.Config{RootCAs: roots, ServerName: address.Hostname(), MinVersion: tls.VersionTLS12},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "load-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: readers},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + serviceNamespace}},
	}, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("bind accounts to ClusterRole %s: %w", readers, err)
	}
	accounts := client.CoreV1().ServiceAccounts(serviceNamespace)
	for _, name := range names {
		if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create ServiceAccount %s: %w", name, err)
		}
		token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds()))},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("request a token of ServiceAccount %s: %w", name, err)
		}
		clients.Tokens[name] = token.Status.Token
	}
	return clients, nil
}

// InUse is what a Go process uses after a garbage collection.
type InUse struct {
	// Memory is the heap and the stacks, in bytes.
	Memory, Goroutines float64
}

// InUse collects kube-apiserver's garbage, and returns what it uses.
func (c *ControlPlane) InUse(ctx context.Context) (InUse, error) {
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return InUse{}, fmt.Errorf("make a client: %w", err)
	}
	get := client.CoreV1().RESTClient().Get
	if err := get().AbsPath("/debug/pprof/heap").Param("gc", "1").Do(ctx).Error(); err != nil {
		return InUse{}, fmt.Errorf("collect kube-apiserver's garbage: %w", err)
	}
	body, err := get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return InUse{}, fmt.Errorf("read kube-apiserver's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return InUse{}, fmt.Errorf("parse kube-apiserver's metrics: %w", err)
	}
	return InUse{
		Memory:     Sum(families, "go_memstats_heap_alloc_bytes") + Sum(families, "go_memstats_stack_inuse_bytes"),
		Goroutines: Sum(families, "go_goroutines"),
	}, nil
}
