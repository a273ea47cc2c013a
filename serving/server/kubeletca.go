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

// kubeletCA are the authorities with which kubelets are verified where the
// MetricsBackend does not name others.
type kubeletCA struct {
	// file is followed, since authorities rotate; nil where they are in data.
	file *dynamiccertificates.DynamicFileCAContent
	// data does not change.
	data []byte
	// apply puts other authorities into force.
	apply func(pem []byte) error
}

// newKubeletCA reads file (--kubelet-ca-file), or else takes the authorities of
// kube-apiserver, which sign the kubelets' certificates in most clusters. There
// may be none, as in a kubeconfig of a cluster with a public certificate; that is
// a failure of each scrape with kubeletTLS.mode Verify, not of the start: a
// MetricsBackend that is read later may bring authorities, or another mode.
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

// content is the newest content that could be read, PEM.
func (k *kubeletCA) content() []byte {
	if k.file == nil {
		return k.data
	}
	return k.file.CurrentCABundleContent()
}

// run follows the file until the context ends. A file that cannot be used leaves
// the authorities before it in force.
func (k *kubeletCA) run(ctx context.Context) {
	if k.file == nil {
		return
	}
	k.file.AddListener(caListener(func() {
		if err := k.apply(k.content()); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot use the kubelets' authorities; those before them stay in force", "source", k.file.Name())
			return
		}
		klog.FromContext(ctx).Info("The kubelets' authorities changed", "source", k.file.Name())
	}))
	k.file.Run(ctx, 1)
}

// caListener is called after each change of a CA file.
type caListener func()

// Enqueue implements dynamiccertificates.Listener.
func (l caListener) Enqueue() { l() }
