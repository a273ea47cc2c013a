// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/rand"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/bench/fakeapi"
	"github.com/metricsbackend/metrics-backend-operator/test/authority"
	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

// StartStandIn starts an in-memory stand-in of kube-apiserver with the nodes and pods of a
// started fleet.
func StartStandIn(folder string, f *fleet.Fleet) (*ControlPlane, error) {
	proxy, err := authority.New(proxyCAName)
	if err != nil {
		return nil, err
	}
	ca, err := authority.New("kube-apiserver-ca")
	if err != nil {
		return nil, err
	}
	leaf, err := ca.Issue("kube-apiserver", []string{"127.0.0.1"})
	if err != nil {
		return nil, err
	}
	authentication, err := authenticationConfig(ca, proxy)
	if err != nil {
		return nil, err
	}
	resources, err := fakeapi.Resources(f, authentication)
	if err != nil {
		return nil, fmt.Errorf("make the objects of the fleet: %w", err)
	}
	token := rand.Text()
	server, err := fakeapi.Start(fakeapi.Options{
		Resources: resources, Token: token, User: "system:serviceaccount:" + servingNamespace + ":" + servingAccount, Groups: []string{readers},
	}, leaf.TLS)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{
		Config: &rest.Config{Host: server.URL(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca.PEM}},
		stop:   server.Stop, folder: folder, proxy: proxy,
	}
	if err := c.writeToken(token); err != nil {
		_ = server.Stop()
		return nil, fmt.Errorf("write serving's kubeconfig: %w", err)
	}
	return c, nil
}

// authenticationConfig returns the ConfigMap in which kube-apiserver publishes how aggregated
// API servers authenticate requests.
func authenticationConfig(clients, proxy *authority.Authority) (*corev1.ConfigMap, error) {
	data := map[string]string{"client-ca-file": string(clients.PEM), "requestheader-client-ca-file": string(proxy.PEM)}
	for key, values := range map[string][]string{
		"requestheader-allowed-names":        {proxyName},
		"requestheader-username-headers":     {userHeader},
		"requestheader-group-headers":        {groupHeader},
		"requestheader-extra-headers-prefix": {extraHeaders},
		"requestheader-uid-headers":          {},
	} {
		encoded, err := json.Marshal(values)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", key, err)
		}
		data[key] = string(encoded)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"}, Data: data}, nil
}
