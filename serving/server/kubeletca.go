// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// kubeletCA is the default CA bundle for the certificates of kubelets: the MetricsBackend may
// set another.
type kubeletCA struct {
	// file is watched, since CAs rotate; nil if the bundle is in data.
	file *dynamiccertificates.DynamicFileCAContent
	data []byte
	// apply sets another bundle.
	apply func(pem []byte) error
}

// newKubeletCA reads file (--kubelet-ca-file), or else uses the CA of kube-apiserver, which
// signs the certificates of kubelets in most clusters. There may be none, as in a kubeconfig
// for a public certificate. Then scrapes with kubeletTLS.mode Verify or VerifyOrPin fail, but
// not the start: the MetricsBackend may set a CA or another mode.
func newKubeletCA(file string, client *rest.Config) (*kubeletCA, error) {
	flag := "--kubelet-ca-file"
	if file == "" {
		if len(client.CAData) > 0 || client.CAFile == "" {
			return &kubeletCA{data: client.CAData}, nil
		}
		file, flag = client.CAFile, "the authorities of kube-apiserver"
	}
	content, err := dynamiccertificates.NewDynamicCAContentFromFile("kubelet-ca", file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", flag, err)
	}
	return &kubeletCA{file: content}, nil
}

// content returns the newest valid content, PEM.
func (k *kubeletCA) content() []byte {
	if k.file == nil {
		return k.data
	}
	return k.file.CurrentCABundleContent()
}

// run watches the file until the context ends. With an invalid file the previous CAs stay.
func (k *kubeletCA) run(ctx context.Context) {
	if k.file == nil {
		return
	}
	k.file.AddListener(caListener(func() {
		if err := k.apply(k.content()); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot use the CAs of kubelets; the previous ones stay", "source", k.file.Name())
			return
		}
		klog.FromContext(ctx).Info("The CAs of kubelets changed", "source", k.file.Name())
	}))
	k.file.Run(ctx, 1)
}

// caListener is called after each change of a CA file.
type caListener func()

// Enqueue implements dynamiccertificates.Listener.
func (l caListener) Enqueue() { l() }
