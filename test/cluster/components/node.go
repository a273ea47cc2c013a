// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package components

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"text/template"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/cgroups"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/network"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// PauseImage holds every pod's namespaces open; containerd's own default. It is built here, not pulled.
const PauseImage = "registry.k8s.io/pause:3.6"

// Socket is where our containerd listens.
func Socket(dir state.Dir) string { return dir.Path("containerd", "containerd.sock") }

// Images returns the ctr command line on our containerd, in the namespace of the kubelet's images.
func Images(dir state.Dir, args ...string) []string {
	return append([]string{"--address", Socket(dir), "--namespace", "k8s.io", "images"}, args...)
}

// The format's version 2 is what 1.6 and 1.7 write and 2.x still reads. Everything that would go to
// /run or /var/lib is put below the state directory, where "down" finds it.
var containerdTemplate = template.Must(template.New("containerd").Parse(`version = 2
root = "{{.Dir.Path "containerd" "root"}}"
state = "{{.Dir.Path "containerd" "state"}}"

[grpc]
  address = "{{.Dir.Path "containerd" "containerd.sock"}}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Dir.Path "containerd" "opt"}}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.Pause}}"
  netns_mounts_under_state_dir = true
  # Without CAP_SYS_RESOURCE runc cannot lower oom_score_adj, and every sandbox would die with
  # "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{{.CNIPlugins}}"
  conf_dir = "{{.Dir.Path "cni" "net.d"}}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  Root = "{{.Dir.Path "containerd" "runc"}}"
  SystemdCgroup = false
`))

func containerd(c Config, _ *clients) (Component, error) {
	path := c.Dir.Path("config", "containerd.toml")
	content, err := render(containerdTemplate, map[string]any{"Dir": c.Dir, "CNIPlugins": c.CNIPlugins, "Pause": PauseImage})
	if err != nil {
		return Component{}, err
	}
	cni, err := network.CNIConfig(c.Dir.Path("cni", "addresses"), network.AddressesOf(c.IPFamily))
	if err != nil {
		return Component{}, err
	}
	binary, err := exec.LookPath("containerd")
	if err != nil {
		return Component{}, fmt.Errorf("finding containerd: %w", err)
	}
	return Component{
		Name:  Containerd,
		Path:  binary,
		Files: map[string][]byte{path: content, c.Dir.Path("cni", "net.d", "10-"+network.CNIName+".conflist"): cni},
		Args:  []string{"--config", path},
		Probe: answers("ctr", "--address", Socket(c.Dir), "--connect-timeout", "2s", "version"),
		Grace: 20 * time.Second,
	}, nil
}

var kubeletTemplate = template.Must(template.New("kubelet").Parse(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: "{{.NodeIP}}"
port: 10250
readOnlyPort: 0
healthzBindAddress: 127.0.0.1
healthzPort: 10248
{{- if .Serving}}
tlsCertFile: {{.Serving}}
tlsPrivateKeyFile: {{.ServingKey}}
{{- end}}
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: {{.Authority}}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://{{.Socket}}
cgroupDriver: cgroupfs
cgroupRoot: /{{.Cgroup}}
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
oomScoreAdj: 0
clusterDomain: cluster.local
resolvConf: {{.Dir.Path "config" "resolv.conf"}}
staticPodPath: {{.Dir.Path "static-pods"}}
fileCheckFrequency: 5s
# A changed Secret reaches the pods that mount it in seconds, not in a minute and a half.
syncFrequency: 5s
podLogsDir: {{.Dir.Path "pod-logs"}}
volumePluginDir: {{.Dir.Path "kubelet" "volume-plugins"}}
# Images come from archives, not from a registry: one that is collected could not be pulled again.
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
# A developer's disk is often nearly full.
evictionHard:
  memory.available: 50Mi
  nodefs.available: 1%
  nodefs.inodesFree: 1%
  imagefs.available: 1%
`))

func kubelet(c Config, clients *clients) (Component, error) {
	s, node := store(c.Dir), network.AddressesOf(c.IPFamily).Node
	clientPath, configPath := c.Dir.Path("config", "kubelet.kubeconfig"), c.Dir.Path("config", "kubelet.yaml")
	client, err := kubeconfig(c, kubeletClient)
	if err != nil {
		return Component{}, err
	}
	values := map[string]any{
		"Dir": c.Dir, "NodeIP": node, "Authority": s.Certificate(clusterCA),
		"Socket": Socket(c.Dir), "Cgroup": cgroups.Name, "Serving": "", "ServingKey": "",
	}
	if c.KubeletCertificate == state.SignedByCluster {
		values["Serving"], values["ServingKey"] = s.Certificate(kubeletServing), s.Key(kubeletServing)
	}
	config, err := render(kubeletTemplate, values)
	if err != nil {
		return Component{}, err
	}
	return Component{
		Name: Kubelet,
		Path: filepath.Join(c.Binaries, "kubelet"),
		Files: map[string][]byte{
			clientPath: client,
			configPath: config,
			// No name server: pods reach Services by IP, and a lookup fails at once instead of leaving the machine.
			c.Dir.Path("config", "resolv.conf"): []byte("# The test cluster has no name server.\n"),
		},
		Folders: []string{c.Dir.Path("static-pods")},
		Args: []string{
			"--config=" + configPath,
			"--kubeconfig=" + clientPath,
			"--hostname-override=" + NodeName,
			"--node-ip=" + node,
			"--root-dir=" + c.Dir.Path("kubelet"),
			"--cert-dir=" + c.Dir.Path("kubelet", "pki"),
		},
		Addresses: []string{net.JoinHostPort(node, "10250"), "127.0.0.1:10248"},
		Probe:     clients.healthy("http://127.0.0.1:10248/healthz"),
		Grace:     20 * time.Second,
	}, nil
}

// masqueradeAll: two pods on the bridge reach each other directly, so an answer to a connection that was
// made to a Service IP would not pass the translation again. As the node's own connection, it does.
// The connection tracking limits are the machine's and stay as they are.
var proxyTemplate = template.Must(template.New("proxy").Parse(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: {{.Kubeconfig}}}
hostnameOverride: {{.Node}}
clusterCIDR: {{.Pods}}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
oomScoreAdj: 0
nftables: {masqueradeAll: true, minSyncPeriod: 200ms}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s, udpTimeout: 0s, udpStreamTimeout: 0s}
`))

func proxy(c Config, clients *clients) (Component, error) {
	clientPath, configPath := c.Dir.Path("config", "kube-proxy.kubeconfig"), c.Dir.Path("config", "kube-proxy.yaml")
	client, err := kubeconfig(c, proxyClient)
	if err != nil {
		return Component{}, err
	}
	config, err := render(proxyTemplate, map[string]any{"Kubeconfig": clientPath, "Node": NodeName, "Pods": network.AddressesOf(c.IPFamily).Pods})
	if err != nil {
		return Component{}, err
	}
	return Component{
		Name:      Proxy,
		Path:      filepath.Join(c.Binaries, "kube-proxy"),
		Files:     map[string][]byte{clientPath: client, configPath: config},
		Args:      []string{"--config=" + configPath},
		Addresses: []string{"127.0.0.1:10256", "127.0.0.1:10249"},
		Probe:     clients.healthy("http://127.0.0.1:10256/healthz"),
		Grace:     20 * time.Second,
	}, nil
}

func render(t *template.Template, values any) ([]byte, error) {
	var out bytes.Buffer
	if err := t.Option("missingkey=error").Execute(&out, values); err != nil {
		return nil, fmt.Errorf("rendering the configuration of %s: %w", t.Name(), err)
	}
	return out.Bytes(), nil
}
