// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package components

import (
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/certificates"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/network"
)

// The names of certificates, as files below pki/.
const (
	clusterCA    = "ca"
	frontProxyCA = "front-proxy-ca"
	etcdCA       = "etcd-ca"

	apiServerServing     = "kube-apiserver"
	apiServerToKubelet   = "kube-apiserver-kubelet-client"
	apiServerToEtcd      = "kube-apiserver-etcd-client"
	apiServerToExtension = "front-proxy-client"
	managerServing       = "kube-controller-manager"
	schedulerServing     = "kube-scheduler"
	kubeletServing       = "kubelet"
	etcdServing          = "etcd"
	adminClient          = "admin"
	managerClient        = "kube-controller-manager-client"
	schedulerClient      = "kube-scheduler-client"
	kubeletClient        = "kubelet-client"
	proxyClient          = "kube-proxy-client"

	tokenKey = "service-account"
)

const administrators = "system:masters"

// EnsureCertificates makes what is missing or near its end, and returns the names of what it made.
func EnsureCertificates(c Config) ([]string, error) {
	s, addresses := store(c.Dir), network.AddressesOf(c.IPFamily)
	var made []string
	for _, authority := range []struct {
		name     string
		requests []certificates.Request
	}{
		{clusterCA, []certificates.Request{
			{Name: apiServerServing, CommonName: "kube-apiserver", Hosts: []string{
				"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
				"localhost", NodeName, addresses.Node, addresses.APIServer, "127.0.0.1",
			}},
			{Name: apiServerToKubelet, CommonName: "kube-apiserver-kubelet-client", Organization: administrators},
			{Name: managerServing, CommonName: "kube-controller-manager", Hosts: []string{"localhost", "127.0.0.1"}},
			{Name: schedulerServing, CommonName: "kube-scheduler", Hosts: []string{"localhost", "127.0.0.1"}},
			// The node's IP is a SAN, so that a scraper verifies it with the cluster's CA.
			{Name: kubeletServing, CommonName: "system:node:" + NodeName, Organization: "system:nodes",
				Hosts: []string{NodeName, addresses.Node}},
			{Name: adminClient, CommonName: "metrics-backend-cluster-admin", Organization: administrators},
			{Name: managerClient, CommonName: "system:kube-controller-manager"},
			{Name: schedulerClient, CommonName: "system:kube-scheduler"},
			{Name: kubeletClient, CommonName: "system:node:" + NodeName, Organization: "system:nodes"},
			{Name: proxyClient, CommonName: "system:kube-proxy"},
		}},
		{frontProxyCA, []certificates.Request{
			{Name: apiServerToExtension, CommonName: "front-proxy-client"},
		}},
		{etcdCA, []certificates.Request{
			{Name: etcdServing, CommonName: "etcd", Hosts: []string{"localhost", "127.0.0.1"}, Both: true},
			{Name: apiServerToEtcd, CommonName: "kube-apiserver-etcd-client"},
		}},
	} {
		names, err := s.Ensure(authority.name, authority.requests...)
		if err != nil {
			return nil, err
		}
		made = append(made, names...)
	}
	key, err := s.EnsureSigningKey(tokenKey)
	if err != nil {
		return nil, err
	}
	if key {
		made = append(made, tokenKey)
	}
	return made, nil
}
