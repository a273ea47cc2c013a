// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
)

// kubeletCAPeriod is the interval in which the file is read. dynamiccertificates has a queue for
// each file, whose metrics wake the process twice a second.
const kubeletCAPeriod = 10 * time.Second

// kubeletCA is the default CA bundle for the certificates of kubelets: the MetricsBackend may
// set another.
type kubeletCA struct {
	// file is read again and again, since CAs rotate; empty if the bundle does not change.
	file string
	// bundle is PEM: what was read last of the file, if it was valid.
	bundle []byte
	// failure is the error of the last read, or empty.
	failure string
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
	k := &kubeletCA{file: file}
	if _, err := k.read(); err != nil {
		return nil, fmt.Errorf("read %s: %w", flag, err)
	}
	return k, nil
}

// read reads the file into bundle and reports whether that changed it.
func (k *kubeletCA) read() (changed bool, err error) {
	content, err := os.ReadFile(k.file)
	if err != nil || bytes.Equal(content, k.bundle) {
		return false, err
	}
	if _, err := certutil.ParseCertsPEM(content); err != nil {
		return false, fmt.Errorf("%s: %w", k.file, err)
	}
	k.bundle = content
	return true, nil
}

// run follows the file until the context ends. With an invalid file the previous CAs stay.
func (k *kubeletCA) run(ctx context.Context, c clock.Clock) {
	if k.file == "" {
		return
	}
	logger := klog.FromContext(ctx).WithValues("source", k.file)
	wake.Every(ctx, c, kubeletCAPeriod, func() {
		changed, err := k.read()
		if changed {
			err = k.apply(k.bundle)
		}
		switch {
		case err != nil && err.Error() != k.failure:
			logger.Error(err, "Cannot use the CAs of kubelets; the previous ones stay")
		case changed && err == nil:
			logger.Info("The CAs of kubelets changed")
		}
		k.failure = ""
		if err != nil {
			k.failure = err.Error()
		}
	})
}
