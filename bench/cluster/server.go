// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/authority"
)

// serverName is the name in the certificate of each aggregated API server.
const serverName = serviceName + "." + serviceNamespace + ".svc"

// Server is an aggregated API server as a process: serving, or another implementation.
type Server struct {
	*Process
	// Address it serves on.
	Address string
	// TLS is a front proxy's configuration, which sends the user in headers like
	// kube-apiserver.
	TLS *tls.Config

	// ca signed its certificate, PEM.
	ca     []byte
	client *http.Client
}

// Program is what a Server runs.
type Program struct {
	// Name is used in errors and in the name of the folder with its files.
	Name, Binary string
	// KubeconfigFlag is the flag with the credentials for kube-apiserver. Default: kubeconfig.
	KubeconfigFlag string
	// Files are written to that folder before the start.
	Files map[string][]byte
	// Flags returns the program's own flags, given the paths of Files. Those of every
	// generic API server are added: credentials, certificate and address.
	Flags func(paths map[string]string) []string
}

// StartServer runs a program with a control plane, in a new folder.
func StartServer(c *ControlPlane, program Program) (*Server, error) {
	folder, err := os.MkdirTemp(c.folder, program.Name+"-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for %s: %w", program.Name, err)
	}
	ca, err := authority.New("serving-ca")
	if err != nil {
		return nil, err
	}
	leaf, err := ca.Issue(serverName, []string{serverName})
	if err != nil {
		return nil, err
	}
	certificate, key, err := leaf.Write(folder, "serving")
	if err != nil {
		return nil, fmt.Errorf("write the certificate of %s: %w", program.Name, err)
	}
	proxy, err := c.proxy.Issue(proxyName, nil)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for name, content := range program.Files {
		paths[name] = filepath.Join(folder, name)
		if err := os.WriteFile(paths[name], content, 0o600); err != nil {
			return nil, fmt.Errorf("write %s of %s: %w", name, program.Name, err)
		}
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	s := &Server{
		Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), ca: ca.PEM,
		TLS: &tls.Config{RootCAs: roots, ServerName: serverName, Certificates: []tls.Certificate{proxy.TLS}, MinVersion: tls.VersionTLS12},
	}
	s.client = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{TLSClientConfig: s.TLS.Clone()}}
	command := exec.Command(program.Binary, append([]string{
		"--" + cmp.Or(program.KubeconfigFlag, "kubeconfig") + "=" + c.kubeconfig, "--authentication-kubeconfig=" + c.kubeconfig, "--authorization-kubeconfig=" + c.kubeconfig,
		"--tls-cert-file=" + certificate, "--tls-private-key-file=" + key,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
	}, program.Flags(paths)...)...)
	if s.Process, err = StartProcess(program.Name, command, filepath.Join(folder, "log")); err != nil {
		return nil, err
	}
	return s, nil
}

// Stop ends the process, with SIGKILL if necessary.
func (s *Server) Stop() error {
	s.client.CloseIdleConnections()
	return s.Process.Stop()
}

// WaitReady waits until the server is ready, which for metrics.k8s.io needs two samples of
// each node.
func (s *Server) WaitReady(ctx context.Context) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := s.Get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-s.Ended():
			return s.Err()
		case <-ctx.Done():
			return fmt.Errorf("wait until %s is ready: %w: %w; its log is %s", s.name, context.Cause(ctx), err, s.log)
		case <-ticker.C:
		}
	}
}

// Get requests a path as an administrator.
func (s *Server) Get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.Address+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set(userHeader, "load:admin")
	request.Header.Set(groupHeader, "system:masters")
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s: %s", path, answer.Status, body)
	}
	return body, nil
}

// Header returns the headers of a request's user: one of the readers or, with master, one
// that needs no authorization.
func Header(user string, master bool) []string {
	group := readers
	if master {
		group = "system:masters"
	}
	return []string{"x-remote-user", user, "x-remote-group", group}
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
