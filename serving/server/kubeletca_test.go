// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
)

// generateCA returns a self-signed certificate.
func generateCA(t *testing.T, name string) []byte {
	t.Helper()
	certificate, _, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		t.Fatalf("generate a certificate: %v", err)
	}
	return certificate
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatalf("write %s: %v", path, err)
	}
}

// replace replaces a file atomically, as a kubelet does in a volume.
func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	write(t, path+".new", string(content))
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestKubeletCAComesFrom(t *testing.T) {
	flag, cluster := generateCA(t, "flag"), generateCA(t, "cluster")
	directory := t.TempDir()
	flagFile, clusterFile := filepath.Join(directory, "flag.crt"), filepath.Join(directory, "cluster.crt")
	junk, missing := filepath.Join(directory, "junk.crt"), filepath.Join(directory, "missing.crt")
	write(t, flagFile, string(flag))
	write(t, clusterFile, string(cluster))
	write(t, junk, "hello")
	client := func(tls rest.TLSClientConfig) *rest.Config { return &rest.Config{TLSClientConfig: tls} }

	tests := map[string]struct {
		file    string
		client  *rest.Config
		want    []byte
		wantErr string
	}{
		"the flag":                           {file: flagFile, client: client(rest.TLSClientConfig{CAFile: clusterFile}), want: flag},
		"kube-apiserver's file":              {client: client(rest.TLSClientConfig{CAFile: clusterFile}), want: cluster},
		"kube-apiserver's data":              {client: client(rest.TLSClientConfig{CAData: cluster}), want: cluster},
		"kube-apiserver's data before files": {client: client(rest.TLSClientConfig{CAData: cluster, CAFile: flagFile}), want: cluster},
		"there is none":                      {client: client(rest.TLSClientConfig{})},
		"the flag's file is missing":         {file: missing, client: client(rest.TLSClientConfig{}), wantErr: "read --kubelet-ca-file"},
		"the flag's file has no certificate": {file: junk, client: client(rest.TLSClientConfig{}), wantErr: "read --kubelet-ca-file"},
		"kube-apiserver's file is missing":   {client: client(rest.TLSClientConfig{CAFile: missing}), wantErr: "read the authorities of kube-apiserver"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ca, err := newKubeletCA(tc.file, tc.client)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want one that mentions %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatalf("newKubeletCA: %v", err)
			}
			if diff := cmp.Diff(string(tc.want), string(ca.bundle)); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKubeletCAFollowsItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.crt")
	first, second, third := generateCA(t, "first"), generateCA(t, "second"), generateCA(t, "third")
	write(t, path, string(first))
	ca, err := newKubeletCA(path, &rest.Config{})
	if err != nil {
		t.Fatalf("newKubeletCA: %v", err)
	}
	var applied []string
	ca.apply = func(pem []byte) error {
		applied = append(applied, string(pem))
		if string(pem) == string(second) {
			return errors.New("refused")
		}
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		runUntilEnd(t, func(ctx context.Context) { ca.run(ctx, clock.RealClock{}) })
		// Neither a refusal nor a file that is not valid ends it, and what is applied is applied once.
		for _, content := range [][]byte{first, second, []byte("junk"), nil, third, third} {
			replace(t, path, content)
			time.Sleep(filesPeriod)
			synctest.Wait()
		}
	})
	if diff := cmp.Diff([]string{string(second), string(third)}, applied); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
}

// TestStartsWithoutKubeletCA: the CAs of kubelets may be set by the
// MetricsBackend.
func TestStartsWithoutKubeletCA(t *testing.T) {
	kubeconfig := unreachableKubeconfig(t)
	content, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(content)) {
		if !strings.Contains(line, "certificate-authority-data") {
			lines = append(lines, line)
		}
	}
	write(t, kubeconfig, strings.Join(lines, ""))
	o := parsedOptions(t, "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig, "--bind-address=127.0.0.1")
	o.SecureServing.Listener = listen(t)
	if _, err := New(o, clock.RealClock{}); err != nil {
		t.Errorf("new server: %v", err)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}
