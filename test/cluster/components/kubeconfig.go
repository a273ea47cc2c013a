// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package components

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"text/template"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/network"
)

// Server returns the URL of the kube-apiserver.
func (c Config) Server() string {
	return "https://" + net.JoinHostPort(network.AddressesOf(c.IPFamily).Node, "6443")
}

// contextName is the name of the cluster, the user and the context in every kubeconfig.
const contextName = "metrics-backend-cluster"

var kubeconfigTemplate = template.Must(template.New("kubeconfig").Parse(`apiVersion: v1
kind: Config
clusters:
- name: {{.Name}}
  cluster:
    server: {{.Server}}
    certificate-authority-data: {{.Authority}}
users:
- name: {{.Name}}
  user:
    client-certificate-data: {{.Certificate}}
    client-key-data: {{.Key}}
contexts:
- name: {{.Name}}
  context:
    cluster: {{.Name}}
    user: {{.Name}}
current-context: {{.Name}}
`))

// kubeconfig holds the certificates themselves, so that it can be copied.
func kubeconfig(c Config, client string) ([]byte, error) {
	s := store(c.Dir)
	data := map[string]string{"Name": contextName, "Server": c.Server()}
	for key, path := range map[string]string{
		"Authority": s.Certificate(clusterCA), "Certificate": s.Certificate(client), "Key": s.Key(client),
	} {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("writing the kubeconfig of %s: %w", client, err)
		}
		data[key] = base64.StdEncoding.EncodeToString(content)
	}
	var out bytes.Buffer
	if err := kubeconfigTemplate.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("writing the kubeconfig of %s: %w", client, err)
	}
	return out.Bytes(), nil
}

// AdminKubeconfig is a kubeconfig that may do everything.
func AdminKubeconfig(c Config) ([]byte, error) { return kubeconfig(c, adminClient) }
