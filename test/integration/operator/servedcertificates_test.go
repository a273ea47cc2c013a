// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

// certificateCheck checks until stop that the caBundle of each APIService verifies what each pod serves. Requests do not show
// that at once: kube-apiserver keeps connections.
type certificateCheck struct {
	suite   *controlPlane
	backend string
	issuer  *servingcert.Issuer
	// former are the addresses of pods of an earlier test's MetricsBackend of that name.
	former map[string]bool
	cancel context.CancelFunc
	done   sync.WaitGroup
	checks int
	leaves map[string]bool
	failed []string
}

func startCertificateCheck(t *testing.T, suite *controlPlane, backend string) *certificateCheck {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &certificateCheck{suite: suite, backend: backend, issuer: servingcert.NewIssuer(clock.RealClock{}), cancel: cancel, former: map[string]bool{}, leaves: map[string]bool{}}
	for ip, pod := range suite.pods.of(backend) {
		c.former[ip] = pod.left
	}
	t.Cleanup(cancel)
	c.done.Go(func() { wait.NonSlidingUntilWithContext(ctx, c.check, 30*time.Millisecond) })
	return c
}

// check reads the caBundles before and after it asks the pods: one of both was valid when a pod answered.
func (c *certificateCheck) check(ctx context.Context) {
	name := "metrics-serving-" + c.backend + "." + systemNamespace + ".svc"
	before, err := c.bundles(ctx)
	if err != nil {
		return
	}
	served := c.served(ctx, name)
	after, err := c.bundles(ctx)
	if err != nil || len(served) == 0 {
		return
	}
	c.checks++
	for service, bundle := range before {
		for pod, chain := range served {
			c.leaves[string(chain[0].Raw)] = true
			err := c.issuer.Verify(chain, bundle, name)
			if later, ok := after[service]; err != nil && ok && c.issuer.Verify(chain, later, name) != nil {
				c.failed = append(c.failed, fmt.Sprintf("%s: %d CAs of %s do not verify pod %s: %v",
					time.Now().Format("15:04:05.000"), len(bundle), service, pod, err))
			}
		}
	}
}

// bundles are the caBundles of the backend's APIServices.
func (c *certificateCheck) bundles(ctx context.Context) (map[string]servingcert.Bundle, error) {
	var services apiregistrationv1.APIServiceList
	if err := c.suite.admin.List(ctx, &services, client.MatchingLabels{v1alpha1.LabelBackend: c.backend}); err != nil {
		return nil, err
	}
	bundles := map[string]servingcert.Bundle{}
	for _, service := range services.Items {
		bundles[service.Name] = servingcert.ParseBundle(service.Spec.CABundle)
	}
	return bundles, nil
}

func (c *certificateCheck) stop(t *testing.T) {
	t.Helper()
	c.cancel()
	c.done.Wait()
	t.Logf("pods served %d certificates in %d checks", len(c.leaves), c.checks)
	if len(c.leaves) < 2 {
		t.Error("no change of a certificate was seen: nothing was proven")
	}
	for _, failure := range c.failed[:min(len(c.failed), 5)] {
		t.Error(failure)
	}
}

// served returns the chain that each pod serves to a new connection for a name.
func (c *certificateCheck) served(ctx context.Context, name string) map[string][]*x509.Certificate {
	served := map[string][]*x509.Certificate{}
	for ip := range c.suite.pods.of(c.backend) {
		if c.former[ip] {
			continue
		}
		connection, err := c.suite.pods.dial(ctx, "tcp", net.JoinHostPort(ip, "443"))
		if err != nil {
			continue
		}
		handshake := tls.Client(connection, &tls.Config{ServerName: name, InsecureSkipVerify: true}) // check verifies
		if err := handshake.HandshakeContext(ctx); err == nil {
			served[ip] = handshake.ConnectionState().PeerCertificates
		}
		_ = connection.Close()
	}
	return served
}

// of returns the pods of a backend by their addresses.
func (n *podNetwork) of(backend string) map[string]servingPod {
	n.mu.Lock()
	defer n.mu.Unlock()
	pods := map[string]servingPod{}
	for ip, pod := range n.pods {
		if pod.backend == backend {
			pods[ip] = *pod
		}
	}
	return pods
}
