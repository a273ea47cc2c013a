// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package components

import (
	"encoding/base64"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	proxyapi "k8s.io/kube-proxy/config/v1alpha1"
	kubeletapi "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// cluster is a configuration with certificates, and a containerd on PATH.
func cluster(t *testing.T, certificate state.KubeletCertificate) Config {
	t.Helper()
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "containerd"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	config := Config{
		Dir: state.Dir(t.TempDir()), Binaries: "/cache/v1", CNIPlugins: "/usr/lib/cni", KubeletCertificate: certificate,
	}
	if _, err := EnsureCertificates(config); err != nil {
		t.Fatal(err)
	}
	return config
}

func all(t *testing.T, config Config) []Component {
	t.Helper()
	components, err := All(config)
	if err != nil {
		t.Fatal(err)
	}
	return components
}

func TestEveryComponentIsStoppedOnce(t *testing.T) {
	var names []string
	for _, component := range all(t, cluster(t, state.SignedByCluster)) {
		names = append(names, component.Name)
		if component.Probe == nil || component.Grace == 0 || !filepath.IsAbs(component.Path) {
			t.Errorf("%s: incomplete: %+v", component.Name, component)
		}
	}
	stopped := slices.Sorted(slices.Values(StopOrder))
	slices.Sort(names)
	if diff := cmp.Diff(names, stopped); diff != "" {
		t.Fatalf("(-started +stopped):\n%s", diff)
	}
}

// A change of the kubelet's certificate restarts the kubelet, and not kube-apiserver, which everybody else would notice.
func TestKubeletCertificateConcernsTheKubeletAlone(t *testing.T) {
	config := cluster(t, state.SignedByCluster)
	signed := all(t, config)
	config.KubeletCertificate = state.SelfSigned
	var changed []string
	for i, component := range all(t, config) {
		if component.Fingerprint() != signed[i].Fingerprint() {
			changed = append(changed, component.Name)
		}
	}
	if diff := cmp.Diff([]string{Kubelet}, changed); diff != "" {
		t.Errorf("components to restart (-want +got):\n%s", diff)
	}
}

func TestConfigurationIsWhatTheComponentsRead(t *testing.T) {
	for name, test := range map[string]struct {
		certificate state.KubeletCertificate
		wantFile    bool
	}{
		"signed":      {state.SignedByCluster, true},
		"self-signed": {state.SelfSigned, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := cluster(t, test.certificate)
			components := all(t, config)

			var kubelet kubeletapi.KubeletConfiguration
			read(t, components, Kubelet, "kubelet.yaml", &kubelet)
			if kubelet.CgroupRoot != "/metrics-backend-cluster" || kubelet.Address != "10.244.0.1" || kubelet.ReadOnlyPort != 0 {
				t.Errorf("kubelet: cgroupRoot %q, address %q, readOnlyPort %d", kubelet.CgroupRoot, kubelet.Address, kubelet.ReadOnlyPort)
			}
			if got := kubelet.TLSCertFile != ""; got != test.wantFile {
				t.Errorf("kubelet: tlsCertFile %q, want one: %t", kubelet.TLSCertFile, test.wantFile)
			}
			if kubelet.Authentication.Anonymous.Enabled == nil || *kubelet.Authentication.Anonymous.Enabled {
				t.Error("kubelet: anonymous requests are allowed")
			}
			var proxy proxyapi.KubeProxyConfiguration
			read(t, components, Proxy, "kube-proxy.yaml", &proxy)
			if proxy.Mode != "nftables" || !proxy.NFTables.MasqueradeAll {
				t.Errorf("kube-proxy: mode %q, masqueradeAll %t", proxy.Mode, proxy.NFTables.MasqueradeAll)
			}
		})
	}
}

// Nothing of a cluster without IPv4 has an address of it, but for loopback.
func TestAddressesAreOfTheFamily(t *testing.T) {
	config := cluster(t, state.SignedByCluster)
	config.IPFamily = state.IPv6
	if got, want := config.Server(), "https://[fd00:10:244::1]:6443"; got != want {
		t.Errorf("server %s, want %s", got, want)
	}
	for _, component := range all(t, config) {
		for _, text := range append(slices.Concat(component.Args, component.Addresses), contents(component)...) {
			if strings.Contains(text, "10.244.") || strings.Contains(text, "10.96.") || strings.Contains(text, "0.0.0.0") {
				t.Errorf("%s has an IPv4 address: %s", component.Name, text)
			}
		}
		for _, address := range component.Addresses {
			if _, _, err := net.SplitHostPort(address); err != nil {
				t.Errorf("%s: %v", component.Name, err)
			}
		}
	}
}

func contents(component Component) []string {
	var all []string
	for _, content := range component.Files {
		all = append(all, string(content))
	}
	return all
}

// read decodes one of a component's files, and takes no field that its type does not have.
func read(t *testing.T, components []Component, name, file string, into any) {
	t.Helper()
	component, err := Named(components, name)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range component.Files {
		if filepath.Base(path) == file {
			if err := yaml.UnmarshalStrict(content, into); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			return
		}
	}
	t.Fatalf("%s has no file %s", name, file)
}

// kube-apiserver limits both classes of the system, and kube-system's quota is for these.
func TestSystemPriorityClassesAreLimited(t *testing.T) {
	type scope struct {
		ScopeName, Operator string
		Values              []string
	}
	var admission struct {
		Plugins []struct {
			Name          string
			Configuration struct {
				LimitedResources []struct {
					Resource    string
					MatchScopes []scope
				}
			}
		}
	}
	var quota struct {
		Spec struct {
			ScopeSelector struct{ MatchExpressions []scope }
		}
	}
	component, err := Named(all(t, cluster(t, state.SignedByCluster)), APIServer)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range component.Files {
		if !slices.Contains(component.Args, "--admission-control-config-file="+path) {
			t.Errorf("%s is no argument", path)
		}
		if err := yaml.Unmarshal(content, &admission); err != nil {
			t.Fatal(err)
		}
	}
	if err := yaml.Unmarshal([]byte(systemQuota), &quota); err != nil {
		t.Fatal(err)
	}
	if len(admission.Plugins) != 1 || len(admission.Plugins[0].Configuration.LimitedResources) != 1 {
		t.Fatalf("configuration %+v", admission)
	}
	want := []scope{{"PriorityClass", "In", []string{"system-node-critical", "system-cluster-critical"}}}
	limited := admission.Plugins[0].Configuration.LimitedResources[0]
	if diff := cmp.Diff(want, limited.MatchScopes); diff != "" || limited.Resource != "pods" {
		t.Errorf("limited %s (-want +got):\n%s", limited.Resource, diff)
	}
	if diff := cmp.Diff(want, quota.Spec.ScopeSelector.MatchExpressions); diff != "" {
		t.Errorf("quota (-want +got):\n%s", diff)
	}
}

func TestContainerdKeepsEverythingBelowTheStateDirectory(t *testing.T) {
	config := cluster(t, state.SignedByCluster)
	component, err := Named(all(t, config), Containerd)
	if err != nil {
		t.Fatal(err)
	}
	content := string(component.Files[config.Dir.Path("config", "containerd.toml")])
	for line := range strings.Lines(content) {
		key, value, found := strings.Cut(strings.TrimSpace(line), " = ")
		if !found || !slices.Contains([]string{"root", "state", "address", "path", "conf_dir", "Root"}, key) {
			continue
		}
		if !strings.HasPrefix(strings.Trim(value, "\""), string(config.Dir)+"/") {
			t.Errorf("%s is %s, outside of %s", key, value, config.Dir)
		}
	}
	if !strings.Contains(content, "bin_dir = \"/usr/lib/cni\"") {
		t.Errorf("the folder of the CNI plugins is missing in:\n%s", content)
	}
}

func TestKubeconfigHoldsTheCertificates(t *testing.T) {
	config := cluster(t, state.SignedByCluster)
	content, err := AdminKubeconfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var parsed clientcmdapi.Config
	if err := yaml.UnmarshalStrict(content, &parsed); err != nil {
		t.Fatal(err)
	}
	certificate, err := os.ReadFile(store(config.Dir).Certificate(adminClient))
	if err != nil {
		t.Fatal(err)
	}
	got := base64.StdEncoding.EncodeToString(parsed.AuthInfos[0].AuthInfo.ClientCertificateData)
	if want := base64.StdEncoding.EncodeToString(certificate); got != want {
		t.Error("the client certificate is not the administrator's")
	}
	if server := parsed.Clusters[0].Cluster.Server; server != "https://10.244.0.1:6443" || parsed.CurrentContext != parsed.Contexts[0].Name {
		t.Errorf("server %q, current context %q", server, parsed.CurrentContext)
	}
}

func TestFingerprintTellsEveryChange(t *testing.T) {
	t.Parallel()
	base := Component{Path: "/bin/x", Args: []string{"--a"}, Files: map[string][]byte{"/f": []byte("1"), "/g": nil}}
	same := Component{Path: "/bin/x", Args: []string{"--a"}, Files: map[string][]byte{"/g": nil, "/f": []byte("1")}}
	if base.Fingerprint() != same.Fingerprint() {
		t.Error("the same component has two fingerprints")
	}
	for name, other := range map[string]Component{
		"path":     {Path: "/bin/y", Args: base.Args, Files: base.Files},
		"argument": {Path: base.Path, Args: []string{"--b"}, Files: base.Files},
		"split":    {Path: base.Path, Args: []string{"-", "-a"}, Files: base.Files},
		"content":  {Path: base.Path, Args: base.Args, Files: map[string][]byte{"/f": []byte("2"), "/g": nil}},
		"file":     {Path: base.Path, Args: base.Args, Files: map[string][]byte{"/f": []byte("1"), "/h": nil}},
	} {
		if base.Fingerprint() == other.Fingerprint() {
			t.Errorf("a changed %s is not told", name)
		}
	}
}

func TestFreeNamesTheTakenAddress(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	component := Component{Name: Etcd, Addresses: []string{address}}
	if err := component.Free(); err == nil || !strings.Contains(err.Error(), address) {
		t.Fatalf("got %v, want an error with %s", err, address)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := component.Free(); err != nil {
		t.Fatalf("after it was closed: %v", err)
	}
}

func TestParseNodeReady(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body, wantErr string
		notReady      bool
	}{
		"ready":        {body: `{"status":{"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"Ready","status":"True"}]}}`},
		"not ready":    {body: `{"status":{"conditions":[{"type":"Ready","status":"False","message":"cni plugin not initialized"}]}}`, wantErr: "cni plugin", notReady: true},
		"unknown":      {body: `{"status":{"conditions":[{"type":"Ready","status":"Unknown","message":"Kubelet stopped posting"}]}}`, wantErr: "stopped posting", notReady: true},
		"no condition": {body: `{"status":{}}`, wantErr: "no condition", notReady: true},
		"no JSON":      {body: `<html>`, wantErr: "reading the node"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := parseNodeReady([]byte(test.body))
			if test.wantErr == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.wantErr) || errors.Is(err, errNotReady) != test.notReady {
				t.Fatalf("got %v, want one with %q", err, test.wantErr)
			}
		})
	}
}

func TestWithoutContainerdTheErrorSaysSo(t *testing.T) {
	config := cluster(t, state.SignedByCluster)
	t.Setenv("PATH", t.TempDir())
	if _, err := All(config); !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "containerd") {
		t.Fatalf("got %v, want that containerd is not found", err)
	}
}
