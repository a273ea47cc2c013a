// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
)

// unreachableKubeconfig returns a kubeconfig for a closed port.
func unreachableKubeconfig(t *testing.T) string {
	t.Helper()
	listener := listen(t)
	if err := listener.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://" + listener.Addr().String(), CertificateAuthorityData: generateCA(t, "ca")}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "t"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatalf("write kubeconfig: %v", err)
	}
	return path
}

// startAlone runs a server in this process and returns its URL and what Run returned.
func startAlone(t *testing.T, args ...string) (url string, stop context.CancelFunc, ended <-chan error) {
	t.Helper()
	kubeconfig := unreachableKubeconfig(t)
	o := parsedOptions(t, slices.Concat([]string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--shutdown-delay-duration=0s",
	}, args)...)
	listener := listen(t)
	o.SecureServing.Listener = listener
	if err := o.Validate(); err != nil {
		t.Fatalf("validate: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, err := New(o, clock.RealClock{})
	if err != nil {
		cancel()
		t.Fatalf("new server: %v", err)
	}
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx) }()
	return "https://" + listener.Addr().String(), cancel, result
}

// TestKubeAPIServerAway: the port opens, the health endpoints report the reason, every
// request is rejected, and the process ends with its context.
func TestKubeAPIServerAway(t *testing.T) {
	url, stop, ended := startAlone(t, "--service-namespace=metrics", "--service-name=cluster")
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // A self-signed certificate of this test.
	}}
	awaitLive(t, client, url)
	tests := []struct {
		name, path string
		headers    map[string]string
		wantStatus int
		wantBody   []string
	}{
		{name: "healthy", path: "/healthz", wantStatus: http.StatusOK},
		{name: "not ready", path: "/readyz", wantStatus: http.StatusInternalServerError, wantBody: []string{
			"[-]authentication-config failed", "[-]informers failed", "[-]backend failed", "[-]declared-metrics failed", "[-]sources failed", "[-]rates failed", "[-]registered-versions failed",
		}},
		{name: "anonymous", path: "/apis/metrics.k8s.io/v1/nodes", wantStatus: http.StatusUnauthorized},
		{name: "anonymous metrics", path: "/metrics", wantStatus: http.StatusUnauthorized},
		{name: "reasons are not public", path: "/readyz/rates", wantStatus: http.StatusUnauthorized},
		{
			name: "a user's name in a header without kube-apiserver's certificate", path: "/apis/metrics.k8s.io/v1/nodes",
			headers: map[string]string{"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}, wantStatus: http.StatusUnauthorized,
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range tc.headers {
				request.Header.Set(name, value)
			}
			answer, err := client.Do(request)
			if err != nil {
				t.Fatalf("get %s: %v", tc.path, err)
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatalf("read: %v", err)
			}
			if answer.StatusCode != tc.wantStatus {
				t.Errorf("status %d, want %d: %s", answer.StatusCode, tc.wantStatus, body)
			}
			for _, part := range tc.wantBody {
				if !strings.Contains(string(body), part) {
					t.Errorf("the body does not mention %q:\n%s", part, body)
				}
			}
		})
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// awaitLive waits for the generic API server's own start, which takes a moment
// after the port has opened.
func awaitLive(t *testing.T, client *http.Client, url string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		answer, err := client.Get(url + "/livez")
		if err != nil {
			return false, nil // Tried again.
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		t.Fatalf("wait for /livez: %v", err)
	}
}

func TestNewFails(t *testing.T) {
	kubeconfig := unreachableKubeconfig(t)
	all := []string{"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig}
	badBackend := filepath.Join(t.TempDir(), "backend.yaml")
	write(t, badBackend, "apiVersion: metricsbackend.io/v1alpha1\nkind: MetricsBackend\nmetadata: {name: cluster}\nspec: {resourceMetrics: {scrape: {port: 99999}}}")
	_, takenPort, _ := net.SplitHostPort(listen(t).Addr().String())
	missing := filepath.Join(t.TempDir(), "missing")

	tests := map[string]struct {
		args    []string
		wantErr string
	}{
		"no kubeconfig outside a cluster":   {args: all[:1], wantErr: "no --authentication-kubeconfig is given and this is not a pod"},
		"no kubeconfig for nodes and pods":  {args: all[1:], wantErr: "no --kubeconfig is given and this is not a pod"},
		"a kubeconfig that does not exist":  {args: slices.Concat(all[1:], []string{"--kubeconfig=" + missing}), wantErr: "read --kubeconfig"},
		"a port that is taken":              {args: slices.Concat(all, []string{"--bind-address=127.0.0.1", "--secure-port=" + takenPort}), wantErr: "address already in use"},
		"a manifest that cannot be used":    {args: slices.Concat(all, []string{"--backend-file=" + badBackend}), wantErr: "spec.resourceMetrics.scrape.port"},
		"a kubelet CA that does not exist":  {args: slices.Concat(all, []string{"--kubelet-ca-file=" + missing}), wantErr: "read --kubelet-ca-file"},
		"a certificate that does not exist": {args: slices.Concat(all, []string{"--tls-cert-file=" + missing, "--tls-private-key-file=" + missing}), wantErr: "missing"},
		"a client CA that does not exist":   {args: slices.Concat(all, []string{"--client-ca-file=" + missing}), wantErr: "read --client-ca-file"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			if err := os.Unsetenv("KUBERNETES_SERVICE_HOST"); err != nil {
				t.Fatal(err)
			}
			o := parsedOptions(t, slices.Concat([]string{"--bind-address=127.0.0.1", "--secure-port=0"}, tc.args)...)
			if o.SecureServing.BindPort == 0 {
				o.SecureServing.Listener = listen(t)
			}
			_, err := New(o, clock.RealClock{})
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want one that mentions %q", err, tc.wantErr)
			}
		})
	}
}
