//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/metricsbackend/metrics-backend-operator/test/authority"
)

// controlPlane is a kube-apiserver with its aggregator, and etcd.
type controlPlane struct {
	env        *envtest.Environment
	config     *rest.Config
	kubeconfig string
	client     kubernetes.Interface
	aggregator apiregistration.Interface
	// servingCA signs serving's certificates, kubeletCA the kubelets', frontProxy
	// that of kube-apiserver as a client of serving.
	servingCA, kubeletCA, frontProxy *authority.Authority
	// frontProxyCA is the file with the authorities of the front proxy, and folder
	// holds its certificate.
	frontProxyCA, folder string
}

func startControlPlane(folder string) (*controlPlane, error) {
	certificates := filepath.Join(folder, "certificates")
	if err := os.MkdirAll(certificates, 0o700); err != nil {
		return nil, err
	}
	// The front proxy has its own CA: with the clients' CA any client could impersonate anyone.
	frontProxy, err := authority.New("front-proxy-ca")
	if err != nil {
		return nil, err
	}
	frontProxyCA := filepath.Join(folder, "front-proxy-ca.crt")
	if err := os.WriteFile(frontProxyCA, frontProxy.PEM, 0o600); err != nil {
		return nil, err
	}
	client, err := frontProxy.Issue(frontProxyName, nil)
	if err != nil {
		return nil, err
	}
	proxyCert, proxyKey, err := client.Write(folder, "tls")
	if err != nil {
		return nil, err
	}

	// kube-apiserver starts slowly on a machine that also compiles.
	env := &envtest.Environment{
		BinaryAssetsDirectory:    assets,
		ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: time.Minute,
		CRDDirectoryPaths: []string{"../../../config/crd/bases"}, ErrorIfCRDPathMissing: true,
		CRDInstallOptions: envtest.CRDInstallOptions{MaxTime: time.Minute},
	}
	apiServer := env.ControlPlane.GetAPIServer()
	// A folder of its own outlives a restart of kube-apiserver.
	apiServer.CertDir = certificates
	log, err := os.Create(filepath.Join(folder, "kube-apiserver.log"))
	if err != nil {
		return nil, err
	}
	apiServer.Out, apiServer.Err = log, log
	apiServer.Configure().
		Set("requestheader-client-ca-file", frontProxyCA).
		Set("requestheader-allowed-names", frontProxyName).
		Set("requestheader-username-headers", "X-Remote-User").
		Set("requestheader-group-headers", "X-Remote-Group").
		Set("requestheader-extra-headers-prefix", "X-Remote-Extra-").
		Set("proxy-client-cert-file", proxyCert).
		Set("proxy-client-key-file", proxyKey).
		// Without it, kube-apiserver waits a minute for watches before it ends.
		Set("shutdown-send-retry-after", "true")
	c := &controlPlane{env: env, frontProxy: frontProxy, frontProxyCA: frontProxyCA, folder: folder}
	if c.config, err = env.Start(); err != nil {
		return nil, err
	}
	if err := c.prepare(folder); err != nil {
		_ = env.Stop()
		return nil, err
	}
	return c, nil
}

func (c *controlPlane) prepare(folder string) error {
	c.kubeconfig = filepath.Join(folder, "admin.kubeconfig")
	if err := os.WriteFile(c.kubeconfig, c.env.KubeConfig, 0o600); err != nil {
		return err
	}
	var err error
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return err
	}
	if c.aggregator, err = apiregistration.NewForConfig(c.config); err != nil {
		return err
	}
	if c.servingCA, err = authority.New("serving-ca"); err != nil {
		return err
	}
	if c.kubeletCA, err = authority.New("kubelet-ca"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return createFoundation(ctx, c.client)
}

func (c *controlPlane) stop() error { return c.env.Stop() }

// stopAPIServer stops kube-apiserver until start is called, or the test ends.
func (c *controlPlane) stopAPIServer(t *testing.T) (start func()) {
	t.Helper()
	server := c.env.ControlPlane.GetAPIServer()
	if err := server.Stop(); err != nil {
		t.Fatalf("stop kube-apiserver: %v", err)
	}
	again := sync.OnceValue(server.Start)
	t.Cleanup(func() {
		if err := again(); err != nil {
			t.Errorf("start kube-apiserver: %v", err)
		}
	})
	return func() {
		t.Helper()
		if err := again(); err != nil {
			t.Fatalf("start kube-apiserver: %v", err)
		}
	}
}

// kubectl runs the real kubectl as an administrator and returns what it prints.
func (c *controlPlane) kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(assets, "kubectl"), append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
	// The discovery cache of an earlier test must not answer.
	command.Env = append(os.Environ(), "KUBECACHEDIR="+t.TempDir(), "KUBERC=off")
	out, err := command.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %v: %w: %s", args, err, out)
	}
	return string(out), nil
}
