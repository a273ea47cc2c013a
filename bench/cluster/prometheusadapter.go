// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

// StartPrometheusAdapter runs a binary of prometheus-adapter with a control plane, its
// configuration and the URL of its Prometheus, with the flags of its release and further
// ones.
func StartPrometheusAdapter(c *ControlPlane, binary string, config []byte, prometheusURL string, flags ...string) (*Server, error) {
	const file = "config.yaml"
	return StartServer(c, Program{
		Name: "prometheus-adapter", Binary: binary, KubeconfigFlag: "lister-kubeconfig",
		Files: map[string][]byte{file: config},
		Flags: func(paths map[string]string) []string {
			return append([]string{
				"--config=" + paths[file],
				"--prometheus-url=" + prometheusURL,
				"--metrics-relist-interval=1m",
			}, flags...)
		},
	})
}
