//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/authority"
	"github.com/metricsbackend/metrics-backend-operator/test/freeport"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// process is a running serving component.
type process struct {
	command *exec.Cmd
	// port of the API, and url on loopback.
	port int32
	url  string
	// folder holds the certificate, tls.crt and tls.key.
	folder string
	// client trusts servingCA for the name of the Service, and nothing else.
	client *http.Client
	log    *lockedBuffer
	// ended is closed when the process has; result is valid from then on.
	ended  chan struct{}
	result error
}

// lockedBuffer takes a process's output while a test may read it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startServing runs the binary as serving's account, for a Service of the given
// name, with the flags that the operator sets but for what args change.
func (c *controlPlane) startServing(t *testing.T, service string, args ...string) *process {
	t.Helper()
	return c.startServingAs(t, service, c.writeKubeconfig(t, t.TempDir(), servingAccount), args...)
}

// startServingAs is startServing with a kubeconfig; it asks nothing of kube-apiserver.
func (c *controlPlane) startServingAs(t *testing.T, service, kubeconfig string, args ...string) *process {
	t.Helper()
	return c.startServingFor(t, service, kubeconfig, servingNamespace+"/"+scrapeAccount, args...)
}

// startServingFor is startServingAs with the account whose token kubelets get, or "" for that of the kubeconfig.
func (c *controlPlane) startServingFor(t *testing.T, service, kubeconfig, scrapes string, args ...string) *process {
	t.Helper()
	p := &process{folder: t.TempDir(), log: &lockedBuffer{}, ended: make(chan struct{})}
	serverName := service + "." + servingNamespace + ".svc"
	certFile, keyFile := issueFiles(t, c.servingCA, p.folder, serverName)
	caFile := c.writeFile(t, p.folder, "ca.crt", c.servingCA.PEM)
	p.port = int32(freeport.Must(t))
	p.url = "https://127.0.0.1:" + strconv.Itoa(int(p.port))
	roots := x509.NewCertPool()
	roots.AddCert(c.servingCA.Certificate)
	p.client = &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: serverName, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true},
	}
	t.Cleanup(p.client.CloseIdleConnections)

	p.command = exec.Command(servingBinary, append([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--secure-port=" + strconv.Itoa(int(p.port)), "--tls-cert-file=" + certFile, "--tls-private-key-file=" + keyFile,
		"--serving-ca-file=" + caFile, "--kubelet-ca-file=" + c.writeFile(t, p.folder, "kubelet-ca.crt", c.kubeletCA.PEM),
		"--shutdown-delay-duration=1s", "-v=2",
	}, args...)...)
	p.command.Env = append(os.Environ(), v1alpha1.ScrapeAccountVariable+"="+scrapes)
	p.command.Stdout, p.command.Stderr = p.log, p.log
	if err := p.command.Start(); err != nil {
		t.Fatalf("start serving: %v", err)
	}
	go func() {
		p.result = p.command.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.signal(t, syscall.SIGKILL)
		<-p.ended
		if t.Failed() {
			t.Logf("log of serving for %s:\n%s", service, p.log)
		}
	})
	return p
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.command.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("send signal %s to serving: %v", s, err)
	}
}

// waitReady waits for the first readiness.
func (p *process) waitReady(t *testing.T) {
	t.Helper()
	outcome.Eventually(t, time.Minute, "serving becomes ready", func(context.Context) error { return p.ready(t.Context()) })
}

// ready returns nil when /readyz says so.
func (p *process) ready(ctx context.Context) error {
	select {
	case <-p.ended:
		return fmt.Errorf("the process has ended: %w", p.result)
	default:
	}
	status, body, err := p.get(ctx, "/readyz?verbose", "")
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("status %d: %s", status, body)
	}
	return nil
}

// waitEnded waits until the process has ended, and fails the test unless it exited with 0.
func (p *process) waitEnded(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
		if p.result != nil {
			t.Errorf("the process ended with %v", p.result)
		}
	case <-time.After(30 * time.Second):
		outcome.Deadlinef(t, "the process has not ended within 30s")
	}
}

// send requests a path of the process itself, not through kube-apiserver, with a token unless it is empty, and with
// headers, each a name and a value.
func (p *process) send(ctx context.Context, client *http.Client, path, token string, header ...string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	return client.Do(request)
}

// get returns the response to send.
func (p *process) get(ctx context.Context, path, token string, header ...string) (status int, body string, err error) {
	answer, err := p.send(ctx, p.client, path, token, header...)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(content), err
}

// issueFiles writes a leaf of an authority, with that name, to folder/tls.crt and folder/tls.key.
func issueFiles(t *testing.T, a *authority.Authority, folder, name string) (certFile, keyFile string) {
	t.Helper()
	leaf, err := a.Issue(name, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	if certFile, keyFile, err = leaf.Write(folder, "tls"); err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile
}

// writeKubeconfig writes a kubeconfig for an account in servingNamespace.
func (c *controlPlane) writeKubeconfig(t *testing.T, folder, account string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: c.token(t, account)}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(folder, account+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatalf("write a kubeconfig: %v", err)
	}
	return path
}

func (c *controlPlane) writeFile(t *testing.T, folder, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatalf("write %s: %v", name, err)
	}
	return path
}
