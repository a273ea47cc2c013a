// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package components

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// probeTimeout bounds one question to a component.
const probeTimeout = 3 * time.Second

// clients talk to the components as the administrator.
type clients struct {
	http *http.Client
}

func newClients(c Config) (*clients, error) {
	s := store(c.Dir)
	authority, err := os.ReadFile(s.Certificate(clusterCA))
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("reading the cluster's CA %s: no certificate in it; run down, then up", s.Certificate(clusterCA))
	}
	certificate, err := tls.LoadX509KeyPair(s.Certificate(adminClient), s.Key(adminClient))
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's certificate: %w", err)
	}
	return &clients{&http.Client{
		Timeout: probeTimeout,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
			// Each probe uses a new connection: a kept one to a killed component would fail only once.
			DisableKeepAlives: true,
		},
	}}, nil
}

// get returns the body of a 200.
func (c *clients) get(ctx context.Context, url string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, url, "", "")
}

// do returns the body of a 200 or 201.
func (c *clients) do(ctx context.Context, method, url, contentType, content string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(content))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, url, err)
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated {
		return nil, fmt.Errorf("%s %s: %s", method, url, response.Status)
	}
	return body, nil
}

func (c *clients) healthy(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.get(ctx, url)
		return err
	}
}

// reports asks for a verbose health page and looks for one of its checks.
func (c *clients) reports(url, check string) func(context.Context) error {
	return func(ctx context.Context) error {
		body, err := c.get(ctx, url+"?verbose")
		if err != nil {
			return err
		}
		if !bytes.Contains(body, []byte("[+]"+check+" ok")) {
			return fmt.Errorf("GET %s: %s is not running yet", url, check)
		}
		return nil
	}
}

// answers runs a program that asks the component something, as containerd speaks gRPC only.
func answers(name string, args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
		}
		return nil
	}
}

// errNotReady says that the node exists and is not ready.
var errNotReady = errors.New("the node is not ready")

// NodeReady returns nil when the node's condition Ready is True.
func NodeReady(ctx context.Context, c Config) error {
	asAdmin, err := newClients(c)
	if err != nil {
		return err
	}
	body, err := asAdmin.get(ctx, c.Server()+"/api/v1/nodes/"+NodeName)
	if err != nil {
		return fmt.Errorf("asking for the node: %w", err)
	}
	return parseNodeReady(body)
}

func parseNodeReady(body []byte) error {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := json.Unmarshal(body, &node); err != nil {
		return fmt.Errorf("reading the node: %w", err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type != "Ready" {
			continue
		}
		if condition.Status == "True" {
			return nil
		}
		return fmt.Errorf("%w: %s", errNotReady, condition.Message)
	}
	return fmt.Errorf("%w: it has no condition yet", errNotReady)
}
