// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package components

import (
	"net"
	"path/filepath"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/certificates"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/network"
)

func etcd(c Config, clients *clients) (Component, error) {
	s := store(c.Dir)
	const clientURL, peerURL, metricsURL = "https://127.0.0.1:2379", "https://127.0.0.1:2380", "http://127.0.0.1:2381"
	return Component{
		Name: Etcd,
		Path: filepath.Join(c.Binaries, "etcd"),
		Args: []string{
			"--name=" + NodeName,
			"--data-dir=" + c.Dir.Path("etcd"),
			"--listen-client-urls=" + clientURL,
			"--advertise-client-urls=" + clientURL,
			"--listen-peer-urls=" + peerURL,
			"--initial-advertise-peer-urls=" + peerURL,
			"--initial-cluster=" + NodeName + "=" + peerURL,
			"--listen-metrics-urls=" + metricsURL,
			"--client-cert-auth",
			"--trusted-ca-file=" + s.Certificate(etcdCA),
			"--cert-file=" + s.Certificate(etcdServing),
			"--key-file=" + s.Key(etcdServing),
			"--peer-client-cert-auth",
			"--peer-trusted-ca-file=" + s.Certificate(etcdCA),
			"--peer-cert-file=" + s.Certificate(etcdServing),
			"--peer-key-file=" + s.Key(etcdServing),
			// What a killed process wrote is in the page cache; only a power cut would lose it.
			"--unsafe-no-fsync",
			"--log-format=console",
		},
		Addresses: []string{"127.0.0.1:2379", "127.0.0.1:2380", "127.0.0.1:2381"},
		Probe:     clients.healthy(metricsURL + "/health"),
		Grace:     20 * time.Second,
	}, nil
}

func apiServer(c Config, clients *clients) (Component, error) {
	s, addresses := store(c.Dir), network.AddressesOf(c.IPFamily)
	admission := c.Dir.Path("config", "admission.yaml")
	args := []string{
		"--advertise-address=" + addresses.Node,
		// Only on the cluster's own bridge: nothing is offered to the machine's network.
		"--bind-address=" + addresses.Node,
		"--secure-port=6443",
		"--tls-cert-file=" + s.Certificate(apiServerServing),
		"--tls-private-key-file=" + s.Key(apiServerServing),
		"--client-ca-file=" + s.Certificate(clusterCA),
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--admission-control-config-file=" + admission,
		"--service-cluster-ip-range=" + addresses.Services,
		"--etcd-servers=https://127.0.0.1:2379",
		"--etcd-cafile=" + s.Certificate(etcdCA),
		"--etcd-certfile=" + s.Certificate(apiServerToEtcd),
		"--etcd-keyfile=" + s.Key(apiServerToEtcd),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + filepath.Join(s.Folder, tokenKey+".pub"),
		"--service-account-signing-key-file=" + s.Key(tokenKey),
		// Aggregation: its own CA signs the client that may name users in headers, and pods are dialled
		// by their own IPs, so that a Service without kube-proxy's rules works too.
		"--enable-aggregator-routing=true",
		"--proxy-client-cert-file=" + s.Certificate(apiServerToExtension),
		"--proxy-client-key-file=" + s.Key(apiServerToExtension),
		"--requestheader-client-ca-file=" + s.Certificate(frontProxyCA),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--kubelet-client-certificate=" + s.Certificate(apiServerToKubelet),
		"--kubelet-client-key=" + s.Key(apiServerToKubelet),
		// No --kubelet-certificate-authority, as kubeadm leaves it: logs and exec work with any CA for the kubelet's
		// certificate, and a change of that restarts the kubelet alone.
		// Without it every watch, and there are always some, holds up the end for a minute.
		"--shutdown-send-retry-after=true",
		// The node's name resolves nowhere.
		"--kubelet-preferred-address-types=InternalIP",
	}
	return Component{
		Name:      APIServer,
		Path:      filepath.Join(c.Binaries, "kube-apiserver"),
		Files:     map[string][]byte{admission: []byte(limitedPriorityClasses)},
		Args:      args,
		Addresses: []string{net.JoinHostPort(addresses.Node, "6443")},
		Probe:     clients.healthy(c.Server() + "/readyz"),
		// It drains requests before it gives the port back, at most for their timeout.
		Grace: 70 * time.Second,
	}, nil
}

func controllerManager(c Config, clients *clients) (Component, error) {
	s := store(c.Dir)
	path := c.Dir.Path("config", "kube-controller-manager.kubeconfig")
	content, err := kubeconfig(c, managerClient)
	if err != nil {
		return Component{}, err
	}
	return Component{
		Name:  ControllerManager,
		Path:  filepath.Join(c.Binaries, "kube-controller-manager"),
		Files: map[string][]byte{path: content},
		Args: append(loopClient(s, path, managerServing),
			"--use-service-account-credentials=true",
			"--service-account-private-key-file="+s.Key(tokenKey),
			"--root-ca-file="+s.Certificate(clusterCA),
			"--cluster-signing-cert-file="+s.Certificate(clusterCA),
			"--cluster-signing-key-file="+s.Key(clusterCA),
			"--flex-volume-plugin-dir="+c.Dir.Path("kubelet", "volume-plugins"),
			// Autoscaling at the pace of a demonstration: the defaults are 15 s, 5 min, 30 s and 5 min.
			"--horizontal-pod-autoscaler-sync-period=5s",
			"--horizontal-pod-autoscaler-cpu-initialization-period=10s",
			"--horizontal-pod-autoscaler-initial-readiness-delay=5s",
			"--horizontal-pod-autoscaler-downscale-stabilization=30s",
		),
		Addresses: []string{"127.0.0.1:10257"},
		// It says that it is well before its controllers run, and gives up if the API goes away in between.
		Probe: clients.reports("https://127.0.0.1:10257/healthz", "horizontal-pod-autoscaler-controller"),
		Grace: 20 * time.Second,
	}, nil
}

func scheduler(c Config, clients *clients) (Component, error) {
	s := store(c.Dir)
	path := c.Dir.Path("config", "kube-scheduler.kubeconfig")
	content, err := kubeconfig(c, schedulerClient)
	if err != nil {
		return Component{}, err
	}
	return Component{
		Name:      Scheduler,
		Path:      filepath.Join(c.Binaries, "kube-scheduler"),
		Files:     map[string][]byte{path: content},
		Args:      loopClient(s, path, schedulerServing),
		Addresses: []string{"127.0.0.1:10259"},
		Probe:     clients.healthy("https://127.0.0.1:10259/readyz"),
		Grace:     20 * time.Second,
	}, nil
}

// loopClient is what the controller manager and the scheduler have in common:
// each is a client with a kubeconfig that serves its health on loopback.
func loopClient(s certificates.Store, kubeconfig, serving string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--tls-cert-file=" + s.Certificate(serving),
		"--tls-private-key-file=" + s.Key(serving),
		"--client-ca-file=" + s.Certificate(clusterCA),
		"--requestheader-client-ca-file=" + s.Certificate(frontProxyCA),
		// There is one of each: an election would only make every restart wait for a lease to end.
		"--leader-elect=false",
	}
}
