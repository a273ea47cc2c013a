// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Settings are the settings of a Source that Apply can change.
type Settings struct {
	// Interval between two scrapes of a node, on average.
	Interval time.Duration
	// Timeout of a scrape, from the connection to the end of the body.
	Timeout time.Duration
	// MaxConcurrent is the maximum number of concurrent scrapes.
	MaxConcurrent int
	// MaxBodySize in bytes; a scrape of a larger body fails.
	MaxBodySize int64
	// AddressTypes in order of preference; the first that a node has is used.
	AddressTypes []corev1.NodeAddressType
	// Port of the kubelets; 0 means that in the node's status, or 10250.
	Port int32
	// NodeSelector selects the nodes to scrape; nil selects all.
	NodeSelector labels.Selector
	// TLS says how a kubelet is verified before credentials are sent to it.
	TLS v1alpha1.KubeletTLSMode
	// Verified reports that a CA has verified some kubelet of the cluster, maybe for another
	// process. Then VerifyOrPin pins nothing, which no later settings change.
	Verified bool
	// CABundle verifies the kubelets' certificates, PEM; Options.DefaultCA if empty.
	CABundle []byte
}

// settings are validated Settings. They are immutable.
type settings struct {
	Settings
	// kubeletTLS is the same pointer as long as the TLS settings do not change, so
	// that a connection is compared with it to see whether it is still valid.
	kubeletTLS *kubeletTLS
}

// validate returns s as settings, with the kubeletTLS of current if unchanged.
func (c *credentials) validate(s Settings, current *settings) (*settings, error) {
	switch {
	case s.Interval <= 0:
		return nil, fmt.Errorf("scrape interval %s: must be positive", s.Interval)
	case s.Timeout <= 0:
		return nil, fmt.Errorf("scrape timeout %s: must be positive", s.Timeout)
	case s.MaxConcurrent < 1:
		return nil, fmt.Errorf("%d concurrent scrapes: must be at least 1", s.MaxConcurrent)
	case s.MaxBodySize < 1:
		return nil, fmt.Errorf("body size of %d bytes: must be at least 1", s.MaxBodySize)
	case s.Port < 0 || s.Port > 65535:
		return nil, fmt.Errorf("kubelet port %d: must be from 1 to 65535, or 0 for the port in the node's status", s.Port)
	case len(s.AddressTypes) == 0:
		return nil, errors.New("no address types: at least one is needed to find a node's address")
	}
	if s.NodeSelector == nil {
		s.NodeSelector = labels.Everything()
	}
	s.AddressTypes = slices.Clone(s.AddressTypes)
	s.CABundle = bytes.Clone(s.CABundle)
	if current != nil && current.TLS == s.TLS && bytes.Equal(current.CABundle, s.CABundle) {
		return &settings{Settings: s, kubeletTLS: current.kubeletTLS}, nil
	}
	kubeletTLS, err := c.kubeletTLS(s.TLS, s.CABundle)
	if err != nil {
		return nil, err
	}
	return &settings{Settings: s, kubeletTLS: kubeletTLS}, nil
}
