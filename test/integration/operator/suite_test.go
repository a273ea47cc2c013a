// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package operator tests the operator against a real kube-apiserver and etcd,
// with exactly the rights of config/rbac. No kubelet and no controller manager
// run: workload_test.go takes their place, and pods are TLS servers in this
// process, which the real aggregator reaches through an egress proxy.
package operator

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/declaredmetric"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend"
	"github.com/metricsbackend/metrics-backend-operator/controllers/podapi"
	"github.com/metricsbackend/metrics-backend-operator/controllers/policystatus"
)

const (
	// systemNamespace is the operator's, from config/manager.
	systemNamespace = "metrics-backend-system"
	// otherNamespace is managed too; foreignNamespace is not.
	otherNamespace   = "serving-elsewhere"
	foreignNamespace = "not-managed"

	operatorUser = "system:serviceaccount:" + systemNamespace + ":metrics-backend-operator"
	// advertised is the address at which kube-apiserver enters itself into
	// default/kubernetes; connections to it are led to the real one.
	advertised = "192.0.2.10"

	imageBoth    = "test.example/serving:both"
	imageV1beta1 = "test.example/serving:v1beta1-only"
	imageMissing = "test.example/serving:missing"
)

var suite struct {
	admin    client.WithWatch
	config   *rest.Config
	operator *envtest.AuthenticatedUser
	pods     *podNetwork
	egress   *egressProxy
	workload *workload
	// server is the kube-apiserver that all tests use.
	server   *envtest.APIServer
	auditLog string
	// etcd is the URL of etcd.
	etcd    string
	kubectl string
	root    string
}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration tests of the operator:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		return 0, fmt.Errorf("KUBEBUILDER_ASSETS is not set: it names a directory with kube-apiserver, etcd and kubectl. " +
			"Run make test-integration, or set it to the output of: go -C test/cluster run . binaries kube-apiserver etcd kubectl")
	}
	ctrl.SetLogger(klog.Background())
	var err error
	if suite.root, err = filepath.Abs("../../.."); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "operator-integration-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	suite.pods = newPodNetwork()
	egress, err := startEgressProxy(filepath.Join(dir, "egress.sock"), suite.pods.dial)
	if err != nil {
		return 0, err
	}
	defer egress.close()
	suite.egress = egress
	env, err := startControlPlane(dir, egress)
	if env != nil {
		defer func() { _ = env.Stop() }()
	}
	if err != nil {
		return 0, err
	}
	suite.kubectl = filepath.Join(assets, "kubectl")
	if err := install(dir, env); err != nil {
		return 0, err
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	suite.workload = newWorkload(suite.admin, suite.pods)
	go suite.workload.run(ctx)
	stopped, err := startOperator(ctx)
	if err != nil {
		return 0, err
	}
	code := m.Run()
	cancel()
	<-stopped
	return code, nil
}

func startControlPlane(dir string, egress *egressProxy) (*envtest.Environment, error) {
	env := &envtest.Environment{ControlPlaneStartTimeout: 2 * time.Minute}
	suite.auditLog = filepath.Join(dir, "audit.log")
	policy := filepath.Join(dir, "audit.yaml")
	selector := filepath.Join(dir, "egress.yaml")
	files := map[string]string{
		policy: "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n" +
			"- level: Metadata\n  users: [\"" + operatorUser + "\"]\n- level: None\n",
		selector: "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n" +
			"- name: cluster\n  connection:\n    proxyProtocol: HTTPConnect\n    transport:\n      uds:\n        udsName: " + egress.path + "\n",
	}
	for name, content := range files {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	env.ControlPlane.GetAPIServer().Configure().
		Set("advertise-address", advertised).
		Set("egress-selector-config-file", selector).
		Set("audit-policy-file", policy).
		Set("audit-log-path", suite.auditLog).
		Set("enable-aggregator-routing", "true").
		// Availability of APIServices and discovery are renewed by this.
		Set("authorization-mode", "RBAC")
	config, err := env.Start()
	if err != nil {
		return env, fmt.Errorf("start kube-apiserver and etcd of KUBEBUILDER_ASSETS: %w", err)
	}
	suite.config, suite.etcd, suite.server = config, env.ControlPlane.Etcd.URL.String(), env.ControlPlane.GetAPIServer()
	// The operator's ServiceAccount by a certificate: it has its rights and no others.
	suite.operator, err = env.AddUser(envtest.User{
		Name:   operatorUser,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace},
	}, &rest.Config{QPS: 50, Burst: 100}) // as cmd/operator's defaults
	if err != nil {
		return env, fmt.Errorf("make the operator's credentials: %w", err)
	}
	kinds, err := newScheme()
	if err != nil {
		return env, err
	}
	suite.admin, err = client.NewWithWatch(config, client.Options{Scheme: kinds})
	return env, err
}

func newScheme() (*runtime.Scheme, error) {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiregistrationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(kinds); err != nil {
			return nil, err
		}
	}
	return kinds, nil
}

// install applies config/default as a user would, but for the Deployment's pods,
// which nothing starts here.
func install(dir string, env *envtest.Environment) error {
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, env.KubeConfig, 0o600); err != nil {
		return err
	}
	if err := os.Setenv("KUBECONFIG", kubeconfig); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", "config/default"},
		{"create", "namespace", otherNamespace},
		{"create", "namespace", foreignNamespace},
		{"apply", "--server-side", "-n", otherNamespace, "-k", "config/rbac/serving-namespace"},
		{"wait", "--for=condition=Established", "--timeout=60s", "crd/metricsbackends.metricsbackend.io",
			"crd/custommetrics.metricsbackend.io", "crd/externalmetrics.metricsbackend.io", "crd/externalmetricspolicies.metricsbackend.io"},
	} {
		if out, err := kubectl(args...); err != nil {
			return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

func kubectl(args ...string) (string, error) {
	cmd := exec.Command(suite.kubectl, args...)
	cmd.Dir = suite.root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// startOperator runs the controller as cmd/operator does.
func startOperator(ctx context.Context) (<-chan struct{}, error) {
	kinds, err := newScheme()
	if err != nil {
		return nil, err
	}
	namespaces := []string{systemNamespace, otherNamespace}
	mgr, err := ctrl.NewManager(suite.operator.Config(), ctrl.Options{
		Scheme:  kinds,
		Cache:   metricsbackend.CacheOptions(namespaces),
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return nil, err
	}
	direct := suite.operator.Config()
	direct.Dial = dialAdvertised(suite.config.Host)
	aggregated, err := aggregator.NewClient(direct, mgr.GetAPIReader())
	if err != nil {
		return nil, err
	}
	pods, directory := podapi.NewClient(suite.pods.dial), podapi.NewDirectory()
	reconciler := metricsbackend.New(metricsbackend.Options{
		Client: mgr.GetClient(), Live: blindTo{mgr.GetAPIReader(), drivenByTest},
		Events: mgr.GetEventRecorder(v1alpha1.FieldOwner),
		Pods:   pods, Directory: directory, Aggregator: aggregated,
		Clock:     clock.RealClock{},
		Namespace: systemNamespace, Namespaces: namespaces,
		ServingImage: imageBoth,
	})
	declared := declaredmetric.New(declaredmetric.Options{
		Client: mgr.GetClient(), Cache: mgr.GetCache(),
		Pods: pods, Tokens: podapi.NewTokens(mgr.GetClient(), clock.RealClock{}), Directory: directory,
		Clock: clock.RealClock{},
	})
	if err := declared.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	policies := &policystatus.Reconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}}
	if err := policies.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := mgr.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "the operator ended:", err)
			os.Exit(1)
		}
	}()
	return stopped, nil
}

// eventually polls check until it returns nil, and fails with its last error.
func eventually(t *testing.T, timeout time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	if err := poll(t.Context(), timeout, check); err != nil {
		t.Fatalf("%s: not within %s: %v", what, timeout, err)
	}
}

// poll is eventually for cleanups, too. It returns the last error of check.
func poll(ctx context.Context, timeout time.Duration, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil && last != nil {
		return last
	}
	return err
}
