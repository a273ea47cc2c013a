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
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	dto "github.com/prometheus/client_model/go"

	"github.com/metricsbackend/metrics-backend-operator/test/authority"
)

// servingName is the name in serving's certificate.
const servingName = "serving.load.svc"

// Serving is the serving component as a process.
type Serving struct {
	// Address it serves on.
	Address string
	// TLS is a front proxy's configuration, which sends the user in headers like
	// kube-apiserver.
	TLS *tls.Config
	// CA is the CA of its certificate, PEM; Port is its port.
	CA   []byte
	Port int32

	command *exec.Cmd
	client  *http.Client
	log     string
	ended   chan struct{}
	result  error
}

// StartServing runs a binary with a control plane, the settings of a manifest, and the CA
// of kubelets, or nil if none is scraped.
func StartServing(c *ControlPlane, binary string, manifest, kubeletCA []byte, flags ...string) (*Serving, error) {
	ca, err := authority.New("serving-ca")
	if err != nil {
		return nil, err
	}
	leaf, err := ca.Issue(servingName, []string{servingName})
	if err != nil {
		return nil, err
	}
	proxy, err := c.proxy.Issue(proxyName, nil)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	files := map[string][]byte{"serving.crt": leaf.Certificate, "serving.key": leaf.Key, "backend.yaml": manifest}
	if kubeletCA != nil {
		files["kubelet-ca.crt"] = kubeletCA
		flags = append(flags, "--kubelet-ca-file="+filepath.Join(c.folder, "kubelet-ca.crt"))
	}
	for name, content := range files {
		paths[name] = filepath.Join(c.folder, name)
		if err := os.WriteFile(paths[name], content, 0o600); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Certificate)
	s := &Serving{
		Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		TLS:     &tls.Config{RootCAs: roots, ServerName: servingName, Certificates: []tls.Certificate{proxy.TLS}, MinVersion: tls.VersionTLS12},
		CA:      ca.PEM,
		Port:    int32(port),
		log:     filepath.Join(c.folder, "serving.log"),
		ended:   make(chan struct{}),
	}
	s.client = &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{TLSClientConfig: s.TLS.Clone()}}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, fmt.Errorf("create serving's log: %w", err)
	}
	s.command = exec.Command(binary, append([]string{
		"--kubeconfig=" + c.kubeconfig, "--authentication-kubeconfig=" + c.kubeconfig, "--authorization-kubeconfig=" + c.kubeconfig,
		"--backend-file=" + paths["backend.yaml"],
		"--tls-cert-file=" + paths["serving.crt"], "--tls-private-key-file=" + paths["serving.key"],
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--shutdown-delay-duration=0s",
	}, flags...)...)
	s.command.Stdout, s.command.Stderr = log, log
	if err := s.command.Start(); err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("start serving: %w", err)
	}
	go func() {
		s.result = s.command.Wait()
		_ = log.Close()
		close(s.ended)
	}()
	return s, nil
}

// PID of the process.
func (s *Serving) PID() int { return s.command.Process.Pid }

// Stop ends the process, with SIGKILL if necessary.
func (s *Serving) Stop() error {
	s.client.CloseIdleConnections()
	if err := s.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop serving: %w", err)
	}
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		_ = s.command.Process.Kill()
		<-s.ended
	}
	return nil
}

// WaitReady waits until serving is ready, which needs two samples of each node.
func (s *Serving) WaitReady(ctx context.Context) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := s.Get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("serving has ended: %w; its log is %s", s.result, s.log)
		case <-ctx.Done():
			return fmt.Errorf("serving is not ready: %w; its log is %s", err, s.log)
		case <-ticker.C:
		}
	}
}

// Get requests a path as an administrator.
func (s *Serving) Get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.Address+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("X-Remote-User", "load:admin")
	request.Header.Set("X-Remote-Group", "system:masters")
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

// Metrics returns the metrics of the process. It is an error if one of the names is not among
// them, as after a metric was renamed.
func (s *Serving) Metrics(ctx context.Context, names ...string) (map[string]*dto.MetricFamily, error) {
	body, err := s.Get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("read serving's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("parse serving's metrics: %w", err)
	}
	for _, name := range names {
		if families[name] == nil {
			return nil, fmt.Errorf("serving has no metric %s", name)
		}
	}
	return families, nil
}

// Sum returns the sum of a metric over all its series.
func Sum(families map[string]*dto.MetricFamily, name string) float64 {
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
	}
	return sum
}

const watchesOpen = "metrics_api_watch_connections_open"

// WaitWatches waits until serving reports that many open watches. It must have had one before.
func (s *Serving) WaitWatches(ctx context.Context, want int) error {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		families, err := s.Metrics(ctx, watchesOpen)
		if err != nil {
			return err
		}
		open := Sum(families, watchesOpen)
		if int(open) == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%g watches are open, waiting for %d: %w", open, want, context.Cause(ctx))
		case <-ticker.C:
		}
	}
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
