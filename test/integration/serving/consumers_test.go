//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const readerUser = "system:serviceaccount:" + servingNamespace + ":reader"

// as returns the configuration of an account with a user agent.
func as(t *testing.T, account, userAgent string) *rest.Config {
	t.Helper()
	config := rest.AnonymousClientConfig(cluster.config)
	config.BearerToken = cluster.token(t, account)
	config.UserAgent = userAgent
	return config
}

// TestConsumers: clients that read objects through kube-apiserver are reported, by the user and user agent that
// kube-apiserver forwards, and no others.
func TestConsumers(t *testing.T) {
	p, _ := startAlone(t, "used")
	p.waitReady(t)
	cluster.register(t, "used", p.port, "v1", "v1beta1")
	cluster.waitAvailable(t, metricsVersion("v1"), metricsVersion("v1beta1"))
	const nodes = "/apis/metrics.k8s.io/%s/nodes"
	for version, userAgent := range map[string]string{
		"v1": "kubectl/v1.37.0 (linux/amd64) kubernetes/1234567", "v1beta1": "vpa-recommender/v1.5.0 (linux/amd64)",
	} {
		config := as(t, "reader", userAgent)
		outcome.Eventually(t, 20*time.Second, userAgent+" asks for "+version, func(context.Context) error {
			if status := statusThrough(t, config, fmt.Sprintf(nodes, version)); status != http.StatusOK {
				return fmt.Errorf("status %d", status)
			}
			return nil
		})
	}

	// These use no version.
	waitDiscovered(t, as(t, "reader", "only-discovery/1"))
	if status, _, err := p.get(t.Context(), fmt.Sprintf(nodes, "v1"), cluster.token(t, "nobody")); err != nil || status != http.StatusForbidden {
		t.Fatalf("a request without rights: status %d, %v", status, err)
	}

	report, err := readReport[v1alpha1.ConsumerReport](t.Context(), p, v1alpha1.ConsumersPath, cluster.token(t, "reader"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range report.Consumers {
		if _, err := time.Parse(time.DateOnly, c.LastSeen); err != nil {
			t.Errorf("%+v: no day", c)
		}
		got = append(got, strings.Join([]string{c.Version, c.UserAgent, c.User}, " "))
	}
	slices.Sort(got)
	want := []string{"v1.metrics.k8s.io kubectl " + readerUser, "v1beta1.metrics.k8s.io vpa-recommender " + readerUser}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("consumers (-want +got):\n%s", diff)
	}
}
