// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
)

// kubeletCA is the default CA bundle for the certificates of kubelets: the MetricsBackend may
// set another.
type kubeletCA struct {
	// file is followed, since CAs rotate; empty if the bundle does not change.
	file string
	// bundle is PEM.
	bundle []byte
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
			return &kubeletCA{bundle: client.CAData}, nil
		}
		file, flag = client.CAFile, "the authorities of kube-apiserver"
	}
	content, err := readFiles(file)
	if err == nil {
		_, err = certutil.ParseCertsPEM(content[0])
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", flag, err)
	}
	return &kubeletCA{file: file, bundle: content[0]}, nil
}

// run follows the file until the context ends. With an invalid file the previous CAs stay.
func (k *kubeletCA) run(ctx context.Context, c clock.Clock) {
	if k.file == "" {
		return
	}
	followFiles(ctx, c, "the CAs of kubelets", [][]byte{k.bundle}, func(content [][]byte) error {
		if _, err := certutil.ParseCertsPEM(content[0]); err != nil {
			return err
		}
		return k.apply(content[0])
	}, k.file)
}
