// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"time"
)

// kubeletCAFile is the name of the file with the CA of kubelets.
const kubeletCAFile = "kubelet-ca.crt"

// StartMetricsServer runs a binary of metrics-server with a control plane and the CA of
// kubelets, with the flags of its release but for the resolution.
func StartMetricsServer(c *ControlPlane, binary string, kubeletCA []byte, resolution time.Duration) (*Server, error) {
	return StartServer(c, Program{
		Name: "metrics-server", Binary: binary,
		Files: map[string][]byte{kubeletCAFile: kubeletCA},
		Flags: func(paths map[string]string) []string {
			return []string{
				"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
				"--kubelet-use-node-status-port",
				"--kubelet-certificate-authority=" + paths[kubeletCAFile],
				"--metric-resolution=" + resolution.String(),
			}
		},
	})
}
