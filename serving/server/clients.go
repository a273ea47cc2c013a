// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// clientConfig returns the configuration of the clients of kube-apiserver (--kubeconfig).
func (o *Options) clientConfig() (*rest.Config, error) {
	client, err := restConfigFrom(o.CoreAPI.CoreAPIKubeconfigPath, "--kubeconfig")
	if err != nil {
		return nil, err
	}
	client.UserAgent = rest.DefaultKubernetesUserAgent()
	return client, nil
}

// withProtobuf returns a copy for built-in types, which kube-apiserver stores in protobuf: a
// Node is smaller than in JSON and much cheaper to decode.
func withProtobuf(client *rest.Config) *rest.Config {
	client = rest.CopyConfig(client)
	client.ContentType = runtime.ContentTypeProtobuf
	client.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return client
}

// restConfigFrom reads a kubeconfig file, or the pod's own configuration if file is empty, with
// which kube-apiserver is never asked through a proxy: it changes NO_PROXY, before the process
// sends its first request. Errors name the flag.
func restConfigFrom(file, flag string) (*rest.Config, error) {
	if file == "" {
		// The usual NO_PROXY does not have kube-apiserver's address. With rest.Config.Proxy instead, each client
		// would have connections of its own.
		for _, name := range []string{"NO_PROXY", "no_proxy"} { // which one comes first differs between versions of Go
			value := cmp.Or(os.Getenv(name), os.Getenv("NO_PROXY"), os.Getenv("no_proxy")) + "," + os.Getenv("KUBERNETES_SERVICE_HOST")
			if err := os.Setenv(name, value); err != nil {
				return nil, fmt.Errorf("set %s=%s, so that kube-apiserver is asked without a proxy: %w", name, value, err)
			}
		}
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no %s is given and this is not a pod: %w", flag, err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", flag, err)
	}
	return config, nil
}
