// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package operator tests the operator against a real kube-apiserver and etcd,
// with exactly the rights of config/rbac. No kubelet and no controller manager
// run: workload_test.go takes their place, and pods are TLS servers in this
// process, which the real aggregator reaches through an egress proxy.
package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/declaredmetric"
	"github.com/metricsbackend/metrics-backend-operator/controllers/externalmetricspolicy"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	// systemNamespace is the operator's, from config/manager.
	systemNamespace = "metrics-backend-system"
	// otherNamespace is managed too; foreignNamespace is not.
	otherNamespace   = "serving-elsewhere"
	foreignNamespace = "not-managed"

	operatorUser = "system:serviceaccount:" + systemNamespace + ":metrics-backend-operator"
	// advertised is the address at which kube-apiserver enters itself into
	// default/kubernetes; connections to it go to the real one.
	advertised = "192.0.2.10"

	imageBoth    = "test.example/serving:both"
	imageV1beta1 = "test.example/serving:v1beta1-only"
	imageMissing = "test.example/serving:missing"
)

// controlPlane is a kube-apiserver with etcd, an operator, and pods of its own.
type controlPlane struct {
	admin    client.WithWatch
	config   *rest.Config
	operator *envtest.AuthenticatedUser
	pods     *podNetwork
	egress   *egressProxy
	workload *workload
	// server is the kube-apiserver that all tests use.
	server   *envtest.APIServer
	auditLog string
	// judged is how much of the audit log belongs to tests that have ended.
	judged int64
	// etcd is the URL of etcd.
	etcd string
	// kubectl is a path; kubeconfig is of an administrator.
	kubectl, kubeconfig string
	root                string

	env     *envtest.Environment
	stopped <-chan struct{}
}

// concurrent is how many control planes there are. A MetricsBackend registers what only one of a cluster can, so a test
// has a control plane to itself; and most of its time it waits.
const concurrent = 3

// idle are the control planes that no test has.
var idle = make(chan *controlPlane, concurrent)

// take waits for a control plane, which the test has to itself until its cleanups have run. It fails if the operator
// was refused anything meanwhile.
func take(t *testing.T) *controlPlane {
	t.Helper()
	t.Parallel()
	suite := <-idle
	outcome.Begin(t)
	t.Cleanup(func() { idle <- suite })
	t.Cleanup(func() { noneRefused(t, suite) })
	return suite
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
	root, err := filepath.Abs("../../..")
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "operator-integration-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binaries = filepath.Join(dir, "bin")

	ctx, cancel := context.WithCancel(context.Background())
	var planes [concurrent]controlPlane
	var errs [concurrent]error
	var starting sync.WaitGroup
	for i := range planes {
		planes[i].root, planes[i].kubectl = root, filepath.Join(assets, "kubectl")
		starting.Go(func() { errs[i] = planes[i].start(ctx, filepath.Join(dir, fmt.Sprint(i))) })
	}
	starting.Wait()
	defer func() {
		cancel()
		var stopping sync.WaitGroup
		for i := range planes {
			stopping.Go(planes[i].stop)
		}
		stopping.Wait()
	}()
	if err := errors.Join(errs[:]...); err != nil {
		return 0, err
	}
	for i := range planes {
		idle <- &planes[i]
	}
	return m.Run(), nil
}

// start makes everything, in a folder that it creates; stop ends what it has made when it fails.
func (c *controlPlane) start(ctx context.Context, dir string) (err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	c.pods = newPodNetwork(c)
	if c.egress, err = startEgressProxy(filepath.Join(dir, "egress.sock"), c.pods.dial); err != nil {
		return err
	}
	if err := c.startServers(dir); err != nil {
		return err
	}
	if err := c.install(dir); err != nil {
		return err
	}
	c.workload = newWorkload(c.admin, c.pods)
	go c.workload.run(ctx)
	c.stopped, err = c.startOperator(ctx, c.operator.Config(), []string{systemNamespace, otherNamespace}, ctrl.Options{})
	return err
}

func (c *controlPlane) stop() {
	if c.stopped != nil {
		<-c.stopped
	}
	if c.env != nil {
		_ = c.env.Stop()
	}
	if c.egress != nil {
		c.egress.close()
	}
}

func (c *controlPlane) startServers(dir string) error {
	c.env = &envtest.Environment{ControlPlaneStartTimeout: 2 * time.Minute}
	c.auditLog = filepath.Join(dir, "audit.log")
	policy := filepath.Join(dir, "audit.yaml")
	selector := filepath.Join(dir, "egress.yaml")
	admission := filepath.Join(dir, "admission.yaml")
	files := map[string]string{
		policy: "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n" +
			"- level: Metadata\n  users: [\"" + operatorUser + "\"]\n- level: None\n",
		selector: "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n" +
			"- name: cluster\n  connection:\n    proxyProtocol: HTTPConnect\n    transport:\n      uds:\n        udsName: " + c.egress.path + "\n",
	}
	files[admission] = limitedPriorityClasses
	for name, content := range files {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return err
		}
	}
	c.env.ControlPlane.GetAPIServer().Configure().
		Set("advertise-address", advertised).
		Set("egress-selector-config-file", selector).
		Set("admission-control-config-file", admission).
		Set("audit-policy-file", policy).
		Set("audit-log-path", c.auditLog).
		Set("enable-aggregator-routing", "true").
		// Availability of APIServices and discovery are renewed by this.
		Set("authorization-mode", "RBAC")
	config, err := c.env.Start()
	if err != nil {
		return fmt.Errorf("start kube-apiserver and etcd of KUBEBUILDER_ASSETS: %w", err)
	}
	c.config, c.etcd, c.server = config, c.env.ControlPlane.Etcd.URL.String(), c.env.ControlPlane.GetAPIServer()
	// The operator's ServiceAccount by a certificate: it has its rights and no others.
	c.operator, err = c.env.AddUser(envtest.User{
		Name:   operatorUser,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace},
	}, &rest.Config{QPS: 50, Burst: 100}) // as cmd/operator's defaults
	if err != nil {
		return fmt.Errorf("make the operator's credentials: %w", err)
	}
	kinds, err := newScheme()
	if err != nil {
		return err
	}
	c.admin, err = client.NewWithWatch(config, client.Options{Scheme: kinds})
	return err
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
func (c *controlPlane) install(dir string) error {
	c.kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(c.kubeconfig, c.env.KubeConfig, 0o600); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", "config/default"},
		{"create", "namespace", otherNamespace},
		{"create", "namespace", foreignNamespace},
		{"create", "namespace", policedNamespace},
		{"create", "namespace", unpolicedNamespace},
		{"apply", "--server-side", "-n", otherNamespace, "-k", "config/rbac/serving-namespace"},
		{"wait", "--for=condition=Established", "--timeout=60s", "crd/metricsbackends.metricsbackend.io",
			"crd/custommetrics.metricsbackend.io", "crd/externalmetrics.metricsbackend.io", "crd/externalmetricspolicies.metricsbackend.io"},
	} {
		if out, err := kubectl(c, args...); err != nil {
			return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// environment is that of commands that a user types.
func (c *controlPlane) environment() []string {
	return append(os.Environ(), "KUBECONFIG="+c.kubeconfig)
}

// kubectl runs kubectl as an administrator and returns its output.
func kubectl(suite *controlPlane, args ...string) (string, error) {
	return command(suite, suite.kubectl, args...)
}

// mustKubectl is kubectl that must succeed.
func mustKubectl(t *testing.T, suite *controlPlane, args ...string) string {
	t.Helper()
	out, err := kubectl(suite, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

// command runs a command in the root of the repository and returns its output.
func command(suite *controlPlane, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = suite.root, suite.environment()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// startOperator runs the controllers as cmd/operator does, with the rights of config, for the namespaces; the first is
// the operator's own.
func (c *controlPlane) startOperator(ctx context.Context, config *rest.Config, namespaces []string, options ctrl.Options) (<-chan struct{}, error) {
	kinds, err := newScheme()
	if err != nil {
		return nil, err
	}
	options.Scheme, options.Cache = kinds, metricsbackend.CacheOptions(namespaces)
	options.Metrics = metricsserver.Options{BindAddress: "0"}
	// Names are unique in a process, for the metrics; here each control plane has an operator.
	options.Controller = controllerconfig.Controller{SkipNameValidation: ptr.To(true)}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, err
	}
	direct := rest.CopyConfig(config)
	direct.Dial = dialAdvertised(c.config.Host)
	aggregated, err := aggregator.NewClient(direct, mgr.GetAPIReader())
	if err != nil {
		return nil, err
	}
	pods, directory := servingclient.NewClient(c.pods.dial), servingclient.NewDirectory()
	reconciler := metricsbackend.New(metricsbackend.Options{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(),
		Events: mgr.GetEventRecorder(v1alpha1.FieldOwner),
		Pods:   pods, Directory: directory, Aggregator: aggregated,
		Clock:     clock.RealClock{},
		Namespace: namespaces[0], Namespaces: namespaces,
		ServingImage: imageBoth,
	})
	declared := declaredmetric.New(declaredmetric.Options{
		Client: mgr.GetClient(), Pods: pods, Tokens: servingclient.NewTokens(mgr.GetClient(), clock.RealClock{}), Directory: directory,
		Clock: clock.RealClock{},
	})
	if err := declared.SetupWithManager(mgr); err != nil {
		return nil, err
	}
	policies := &externalmetricspolicy.Reconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}}
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
