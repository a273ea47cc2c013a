// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"

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

// restConfigFrom reads a kubeconfig file, or the pod's own configuration if file is empty.
// Errors name the flag.
func restConfigFrom(file, flag string) (*rest.Config, error) {
	if file == "" {
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
