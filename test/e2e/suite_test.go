// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package e2e tests the product end to end on a real cluster: real kubelet, real
// containers, the real kubectl and the real HPA controller. It wants KUBECONFIG
// and kubectl, and images that are loaded; `make test-e2e` sees to all of it.
package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	// namespace is the operator's, and by default serving's.
	namespace = "metrics-backend-system"
	// backendName is the MetricsBackend of config/samples.
	backendName = "cluster"
)

// suite is what every test shares; it is made once, in TestMain.
var suite struct {
	root   string
	config *rest.Config
	core   *kubernetes.Clientset
	client ctrlclient.Client
}

func TestMain(m *testing.M) {
	if err := setUp(); err != nil {
		fmt.Fprintf(os.Stderr, "set up the end-to-end tests: %v\n", err)
		os.Exit(1)
	}
	// The companions of TestWatch wait most of the time: all of them at once, on however
	// few cores.
	if err := flag.Set("test.parallel", "64"); err != nil {
		fmt.Fprintf(os.Stderr, "set up the end-to-end tests: %v\n", err)
		os.Exit(1)
	}
	code := m.Run()
	if code != 0 {
		diagnose()
	}
	os.Exit(code)
}

// diagnose shows what a build machine takes with it when it goes.
func diagnose() {
	const serving = "app.kubernetes.io/name=metrics-backend-serving"
	for _, args := range [][]string{
		{"get", "metricsbackends", "-o", "yaml"},
		{"get", "apiservices", "-l", v1alpha1.LabelBackend, "-o", "wide"},
		{"get", "pods", "-A", "-o", "wide"},
		{"get", "events", "-n", namespace, "--sort-by=.metadata.creationTimestamp"},
		{"logs", "-n", namespace, "deployment/metrics-backend-operator", "--tail=300"},
		{"logs", "-n", namespace, "-l", serving, "--prefix", "--tail=60"},
	} {
		out, err := run("kubectl", args...)
		fmt.Printf("\n$ kubectl %s\n%s", strings.Join(args, " "), out)
		if err != nil {
			fmt.Println(err)
		}
	}
}

func setUp() error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	suite.root = root
	if os.Getenv("KUBECONFIG") == "" {
		return fmt.Errorf("KUBECONFIG is not set: run make test-e2e, or point it to a cluster that holds the images")
	}
	if suite.config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		return err
	}
	// The tests ask often; throttling would only hide what they look for.
	suite.config.QPS, suite.config.Burst = 200, 400
	if suite.core, err = kubernetes.NewForConfig(suite.config); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiregistrationv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	if suite.client, err = ctrlclient.New(suite.config, ctrlclient.Options{Scheme: scheme}); err != nil {
		return err
	}
	if out, err := run(filepath.Join(root, "hack/deploy.sh")); err != nil {
		return fmt.Errorf("deploy the operator: %w\n%s", err, out)
	}
	return nil
}

// run runs a command in the repository's root and returns what it printed.
func run(name string, args ...string) (string, error) {
	// kubectl keeps what it discovered for minutes; APIs come and go here.
	cache, err := os.MkdirTemp("", "e2e-discovery-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(cache) }()
	cmd := exec.Command(name, args...)
	cmd.Dir = suite.root
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+cache)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// kubectl runs the real kubectl and fails the test when it does.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run("kubectl", args...)
	switch {
	case err != nil && strings.Contains(out, "timed out waiting for the condition"):
		outcome.Deadlinef(t, "kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	case err != nil:
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// cluster runs a command of test/cluster, to break and mend its components.
func cluster(t *testing.T, args ...string) {
	t.Helper()
	if out, err := run("go", append([]string{"-C", "test/cluster", "run", "."}, args...)...); err != nil {
		t.Fatalf("test/cluster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
