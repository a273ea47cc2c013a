//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// startAlone runs a process on one node, from a manifest on disk, as a user may.
func startAlone(t *testing.T, service string, args ...string) (*process, *fakeKubelet) {
	t.Helper()
	kubelet := cluster.startKubelet(t)
	cluster.createNode(t, "node-"+service, kubelet.port, nil)
	return startOn(t, service, args...), kubelet
}

// startOn runs a process on the nodes that there are.
func startOn(t *testing.T, service string, args ...string) *process {
	t.Helper()
	file := cluster.writeFile(t, t.TempDir(), "backend.yaml", []byte(fastScrapes))
	return cluster.startServing(t, service, append([]string{"--backend-file=" + file}, args...)...)
}

// TestRuntimeConfig: a version that is taken out is neither served nor listed.
func TestRuntimeConfig(t *testing.T) {
	p, _ := startAlone(t, "limited", "--runtime-config=metrics.k8s.io/v1=false")
	p.waitReady(t)
	reader := cluster.token(t, "reader")
	for path, want := range map[string]int{
		"/apis/metrics.k8s.io/v1beta1/nodes": http.StatusOK,
		"/apis/metrics.k8s.io/v1beta1":       http.StatusOK,
		"/apis/metrics.k8s.io/v1/nodes":      http.StatusNotFound,
		"/apis/metrics.k8s.io/v1":            http.StatusNotFound,
	} {
		status, body, err := p.get(t.Context(), path, reader)
		if err != nil || status != want {
			t.Errorf("%s: status %d, %v, want %d: %s", path, status, err, want, body)
		}
	}

	_, body, err := p.get(t.Context(), "/apis/metrics.k8s.io", reader)
	if err != nil {
		t.Fatalf("get the group: %v", err)
	}
	var group metav1.APIGroup
	if err := json.Unmarshal([]byte(body), &group); err != nil {
		t.Fatalf("decode %s: %v", body, err)
	}
	beta := metav1.GroupVersionForDiscovery{GroupVersion: "metrics.k8s.io/v1beta1", Version: "v1beta1"}
	if diff := cmp.Diff([]metav1.GroupVersionForDiscovery{beta}, group.Versions); diff != "" || group.PreferredVersion != beta {
		t.Errorf("the group prefers %v and lists (-want +got):\n%s", group.PreferredVersion, diff)
	}

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/apis", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+reader)
	request.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	answer, err := p.client.Do(request)
	if err != nil {
		t.Fatalf("get aggregated discovery: %v", err)
	}
	defer answer.Body.Close()
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		t.Fatalf("decode aggregated discovery: %v", err)
	}
	var versions []string
	for _, g := range list.Items {
		for _, v := range g.Versions {
			versions = append(versions, g.Name+"/"+v.Version)
		}
	}
	want := []string{"metrics.k8s.io/v1beta1", "custom.metrics.k8s.io/v1beta2", "custom.metrics.k8s.io/v1beta1", "external.metrics.k8s.io/v1beta1"}
	if diff := cmp.Diff(want, versions); diff != "" {
		t.Errorf("aggregated discovery (-want +got):\n%s", diff)
	}
}

// TestAudit: the usual audit flags write who asked for what.
func TestAudit(t *testing.T) {
	folder := t.TempDir()
	policy := cluster.writeFile(t, folder, "policy.yaml", []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"))
	log := filepath.Join(folder, "audit.log")
	p, _ := startAlone(t, "audited", "--audit-policy-file="+policy, "--audit-log-path="+log)
	p.waitReady(t)
	if status, body, err := p.get(t.Context(), "/apis/metrics.k8s.io/v1/nodes", cluster.token(t, "reader")); err != nil || status != http.StatusOK {
		t.Fatalf("list nodes: status %d, %v: %s", status, err, body)
	}
	eventually(t, 20*time.Second, "the request is in the audit log", func() error {
		content, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(content)) {
			if strings.Contains(line, `"username":"system:serviceaccount:metrics-backend:reader"`) && strings.Contains(line, `"resource":"nodes"`) {
				return nil
			}
		}
		return fmt.Errorf("not in %d bytes", len(content))
	})
}

// TestCertificateRotation replaces the files under a running process.
func TestCertificateRotation(t *testing.T) {
	p, _ := startAlone(t, "rotated")
	p.waitReady(t)
	name := "rotated." + servingNamespace + ".svc"
	before := servedSerial(t, p, cluster.servingCA, name)

	next, err := newAuthority("next-serving-ca")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := next.issueFiles(p.folder, name, name); err != nil {
		t.Fatalf("replace the certificate: %v", err)
	}
	eventually(t, 30*time.Second, "the new certificate is served", func() error {
		_, err := dialSerial(p, next, name)
		return err
	})
	if after := servedSerial(t, p, next, name); after == before {
		t.Errorf("the certificate's serial number is still %s", after)
	}

	// Half a pair, as between two writes, must not take the good one away.
	cluster.writeFile(t, p.folder, "tls.key", []byte("not a key"))
	eventually(t, 30*time.Second, "the broken key is seen", func() error { return p.logged("tls: failed to find any PEM data in key input") })
	servedSerial(t, p, next, name)
	select {
	case <-p.ended:
		t.Errorf("the process has ended: %v", p.result)
	default:
	}
}

func servedSerial(t *testing.T, p *process, a *authority, name string) string {
	t.Helper()
	serial, err := dialSerial(p, a, name)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return serial
}

func dialSerial(p *process, a *authority, name string) (string, error) {
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	connection, err := tls.Dial("tcp", "127.0.0.1:"+strconv.Itoa(int(p.port)), &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12})
	if err != nil {
		return "", err
	}
	defer connection.Close()
	return connection.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// TestKubeAPIServerRestart: a started pod stays ready and goes on scraping, one
// that starts meanwhile waits and says so, and both work again by themselves.
func TestKubeAPIServerRestart(t *testing.T) {
	p, kubelet := startAlone(t, "lasting")
	p.waitReady(t)
	cluster.register(t, "lasting", p.port, "v1", "v1beta1")
	through := func() error { return wantCount(t.Context(), "/apis/metrics.k8s.io/v1/nodes", 1) }
	eventually(t, time.Minute, "metrics through kube-apiserver", through)

	// The late process needs its token before kube-apiserver goes.
	kubeconfig := cluster.writeKubeconfig(t, t.TempDir(), servingAccount)
	startAPIServer := cluster.stopAPIServer(t)
	late := cluster.startServingAs(t, "late", kubeconfig, "--backend-file="+cluster.writeFile(t, t.TempDir(), "backend.yaml", []byte(fastScrapes)))
	eventually(t, 20*time.Second, "the late process lives and explains itself", func() error {
		status, body, err := late.get(t.Context(), "/livez", "")
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("/livez: status %d, %w: %s", status, err, body)
		}
		return late.logged("Cannot read how kube-apiserver's requests are recognised")
	})
	if err := late.ready(t.Context()); err == nil || !strings.Contains(err.Error(), "[-]authentication-config failed") {
		t.Errorf("the late process's readiness: %v, want it to wait for authentication-config", err)
	}
	if status, _, err := late.get(t.Context(), "/apis/metrics.k8s.io/v1/nodes", ""); err != nil || status != http.StatusUnauthorized {
		t.Errorf("the late process answers status %d, %v, want 401", status, err)
	}
	since := time.Now()
	eventually(t, 20*time.Second, "scrapes go on", func() error {
		if err := p.ready(t.Context()); err != nil {
			t.Fatalf("the started process is no longer ready: %v", err)
		}
		if n := kubelet.requests(since); n < 5 {
			return fmt.Errorf("%d scrapes", n)
		}
		return nil
	})

	startAPIServer()
	eventually(t, 2*time.Minute, "metrics through kube-apiserver again", through)
	eventually(t, 2*time.Minute, "the late process becomes ready", func() error { return late.ready(t.Context()) })
}
