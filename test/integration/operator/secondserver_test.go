// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// advertisedSecond is the address of the second kube-apiserver in default/kubernetes.
const advertisedSecond = "192.0.2.11"

// listensSecond is where the second kube-apiserver listens: on another loopback
// address, and the same port, for default/kubernetes has one port for all.
func listensSecond(first string) string {
	_, port, err := net.SplitHostPort(first)
	if err != nil {
		return first
	}
	return net.JoinHostPort("127.0.0.2", port)
}

// secondServer is another kube-apiserver on the same etcd, with the same
// certificates and accounts.
type secondServer struct {
	suite   *controlPlane
	config  *rest.Config
	process *os.Process
	etcd    *pausableProxy
}

// startSecondServer starts it, and waits until default/kubernetes names it. It ends
// with the test.
func startSecondServer(t *testing.T, suite *controlPlane) *secondServer {
	t.Helper()
	first, err := url.Parse(suite.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	if first.Host == "" {
		first.Host = suite.config.Host
	}
	etcd, err := url.Parse(suite.etcd)
	if err != nil {
		t.Fatal(err)
	}
	s := &secondServer{suite: suite, config: rest.CopyConfig(suite.config), etcd: startPausableProxy(t, etcd.Host)}
	s.config.Host, s.config.ServerName = "https://"+listensSecond(first.Host), first.Hostname()
	logs := s.start(t, first)
	outcome.Eventually(t, patience, "the second kube-apiserver is ready", func(ctx context.Context) error {
		code, body, err := fetch(ctx, s.config.Host+"/readyz", "")
		switch {
		case err != nil:
			text, _ := os.ReadFile(logs) // #nosec G304
			return fmt.Errorf("%w: %s", err, text[max(0, len(text)-2000):])
		case code != http.StatusOK:
			return fmt.Errorf("%d: %s", code, body)
		}
		return nil
	})
	enterSecondServer(t, suite)
	return s
}

func (s *secondServer) start(t *testing.T, first *url.URL) (logs string) {
	t.Helper()
	certificates := s.suite.server.CertDir
	flags := map[string]string{
		"etcd-servers":   "http://" + s.etcd.address(),
		"bind-address":   "127.0.0.2",
		"secure-port":    first.Port(),
		"cert-dir":       certificates,
		"audit-log-path": "",
		// A process that is stopped renews no lease: enterSecondServer takes its place.
		"endpoint-reconciler-type":         "none",
		"advertise-address":                advertisedSecond,
		"service-cluster-ip-range":         "10.0.0.0/24",
		"disable-admission-plugins":        "ServiceAccount",
		"service-account-issuer":           "https://" + first.Host + "/",
		"service-account-key-file":         filepath.Join(certificates, "sa-signer.crt"),
		"service-account-signing-key-file": filepath.Join(certificates, "sa-signer.key"),
	}
	var args []string
	for _, name := range []string{"client-ca-file", "egress-selector-config-file", "enable-aggregator-routing", "authorization-mode"} {
		flags[name] = strings.Join(s.suite.server.Configure().Get(name).Get(nil), ",")
	}
	for name, value := range flags {
		args = append(args, "--"+name+"="+value)
	}
	slices.Sort(args)
	logs = filepath.Join(t.TempDir(), "kube-apiserver.log")
	file, err := os.Create(logs) // #nosec G304
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	cmd := exec.Command(s.suite.server.Path, args...) // #nosec G204
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		t.Fatalf("start a second kube-apiserver: %v", err)
	}
	s.process = cmd.Process
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return logs
}

// setLagging keeps from it what changes in etcd; it goes on answering.
func (s *secondServer) setLagging(lagging bool) { s.etcd.setPaused(lagging) }

// setStopped stops the whole process: connections to it are made, and that is all.
func (s *secondServer) setStopped(t *testing.T, stopped bool) {
	t.Helper()
	signal := syscall.SIGCONT
	if stopped {
		signal = syscall.SIGSTOP
	}
	if err := s.process.Signal(signal); err != nil {
		t.Errorf("%s to the second kube-apiserver: %v", signal, err)
	}
}

// enterSecondServer writes the lease by which the first kube-apiserver enters the
// second one into default/kubernetes, without an end, until the test's.
func enterSecondServer(t *testing.T, suite *controlPlane) {
	t.Helper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{suite.etcd}, DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	const key = "/registry/masterleases/" + advertisedSecond
	lease := `{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"","creationTimestamp":null},"subsets":[{"addresses":[{"ip":"` + advertisedSecond + `"}]}]}`
	if _, err := etcd.Put(t.Context(), key, lease); err != nil {
		t.Fatalf("write the lease of the second kube-apiserver: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		defer func() { _ = etcd.Close() }()
		if _, err := etcd.Delete(ctx, key); err != nil {
			t.Errorf("remove the lease of the second kube-apiserver: %v", err)
		}
		waitServers(ctx, t, suite, advertised)
	})
	waitServers(t.Context(), t, suite, advertised, advertisedSecond)
}

// waitServers waits until default/kubernetes names these, which the first
// kube-apiserver sees to each 10 s.
func waitServers(ctx context.Context, t *testing.T, suite *controlPlane, want ...string) {
	t.Helper()
	var got []string
	if err := outcome.Poll(ctx, patience, func(ctx context.Context) error {
		var slice discoveryv1.EndpointSlice
		if err := suite.admin.Get(ctx, client.ObjectKey{Namespace: "default", Name: "kubernetes"}, &slice); err != nil {
			return err
		}
		got = nil
		for _, endpoint := range slice.Endpoints {
			got = append(got, endpoint.Addresses...)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("they are %v", got)
		}
		return nil
	}); err != nil {
		t.Errorf("the addresses of kube-apiservers are not %v: %v", want, err)
	}
}

// pausableProxy forwards connections to a server, whose answers it can hold back.
type pausableProxy struct {
	listener net.Listener
	mu       sync.Mutex
	paused   bool
	// passing is read-locked while an answer passes, and locked while paused.
	passing sync.RWMutex
}

func startPausableProxy(t *testing.T, to string) *pausableProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pausableProxy{listener: listener}
	t.Cleanup(func() {
		p.setPaused(false)
		_ = listener.Close()
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.forward(conn, to)
		}
	}()
	return p
}

func (p *pausableProxy) address() string { return p.listener.Addr().String() }

func (p *pausableProxy) setPaused(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case paused && !p.paused:
		p.passing.Lock()
	case !paused && p.paused:
		p.passing.Unlock()
	}
	p.paused = paused
}

func (p *pausableProxy) forward(conn net.Conn, to string) {
	defer func() { _ = conn.Close() }()
	target, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = target.Close() }()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(target, conn); _ = target.Close() })
	both.Go(func() { _, _ = io.Copy(pausableWriter{conn, &p.passing}, target); _ = conn.Close() })
	both.Wait()
}

type pausableWriter struct {
	io.Writer
	passing *sync.RWMutex
}

func (w pausableWriter) Write(b []byte) (int, error) {
	w.passing.RLock()
	defer w.passing.RUnlock()
	return w.Writer.Write(b)
}
