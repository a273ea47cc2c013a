// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package aggregator asks kube-apiserver what its aggregation layer says: which
// API versions are in discovery, on each kube-apiserver of the control plane,
// and whether a version answers.
package aggregator

import (
	"fmt"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Client asks kube-apiservers with the operator's own credentials.
type Client struct {
	config *rest.Config
	rest   rest.Interface
	live   client.Reader
}

// NewClient returns a Client for the cluster of config. live must not be a cache.
func NewClient(config *rest.Config, live client.Reader) (*Client, error) {
	raw := rest.CopyConfig(config)
	// By this name serving tells verification from use: see v1alpha1.IsOwnUserAgent.
	raw.UserAgent = v1alpha1.OperatorUserAgent + "/" + version.Get().GitVersion
	// Answers are read raw; the codecs only decode errors.
	raw.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	r, err := rest.UnversionedRESTClientFor(raw)
	if err != nil {
		return nil, fmt.Errorf("make a client for aggregated APIs: %w", err)
	}
	return &Client{config: config, rest: r, live: live}, nil
}

// hostname is the name for which the current kube-apiserver was verified. All of
// a control plane have it in their certificates, since any of them may answer.
func (c *Client) hostname() (string, error) {
	if c.config.TLSClientConfig.ServerName != "" {
		return c.config.TLSClientConfig.ServerName, nil
	}
	server, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return "", fmt.Errorf("read the address of kube-apiserver: %w", err)
	}
	return server.Hostname(), nil
}
