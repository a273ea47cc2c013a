// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/x509"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// Both APIServices are available, verified with a CA, and say so explicitly.
func TestAPIServicesAreVerified(t *testing.T) {
	requireBackend(t)
	for _, version := range []string{"v1", "v1beta1"} {
		service, err := getAPIService(t.Context(), version)
		if err != nil {
			t.Fatal(err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(service.Spec.CABundle) {
			t.Errorf("%s: caBundle holds no certificate", service.Name)
		}
		if service.Spec.InsecureSkipTLSVerify {
			t.Errorf("%s: insecureSkipTLSVerify is true", service.Name)
		}
		available := slices.ContainsFunc(service.Status.Conditions, func(c apiregistrationv1.APIServiceCondition) bool {
			return c.Type == apiregistrationv1.Available && c.Status == apiregistrationv1.ConditionTrue
		})
		if !available {
			t.Errorf("%s: not Available: %+v", service.Name, service.Status.Conditions)
		}
	}
}

// kubectl top of 1.37 asks v1, older ones v1beta1; a node and pods with figures come back.
func TestKubectlTop(t *testing.T) {
	requireBackend(t)
	server, err := suite.core.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	version := "v1"
	if minor, err := strconv.Atoi(server.Minor); err != nil || minor < 37 {
		version = "v1beta1" // kubectl is of the same version
	}
	nodes := kubectl(t, "top", "nodes", "--no-headers", "-v=6")
	if !strings.Contains(nodes, "/apis/metrics.k8s.io/"+version+"/nodes") {
		t.Errorf("kubectl top did not ask %s:\n%s", version, nodes)
	}
	figures := regexp.MustCompile(`(?m)^\S+\s+[1-9]\d*m\s+\d+%\s+[1-9]\d*Mi\s+\d+%`)
	if !figures.MatchString(nodes) {
		t.Errorf("kubectl top nodes shows no figures:\n%s", nodes)
	}
	outcome.Eventually(t, time.Minute, "kubectl top pods shows the serving pods", func(context.Context) error {
		pods, err := run("kubectl", "top", "pods", "-A", "--no-headers", "--containers")
		if err != nil {
			return fmt.Errorf("%w: %s", err, pods)
		}
		if !regexp.MustCompile(namespace + `\s+\S+\s+serving\s+\d+m\s+[1-9]\d*Mi`).MatchString(pods) {
			return fmt.Errorf("no serving pod in:\n%s", pods)
		}
		return nil
	})
}

// kubectl's generic commands work too: Table, selectors, paging, explain.
func TestKubectlGet(t *testing.T) {
	requireBackend(t)
	cases := map[string]struct {
		args []string
		want string
	}{
		"table of nodes":  {[]string{"get", "nodes.metrics.k8s.io"}, `(?m)^NAME\s+CPU\s+MEMORY\s+WINDOW`},
		"table of pods":   {[]string{"get", "pods.v1beta1.metrics.k8s.io", "-n", namespace}, `(?m)^NAME\s+CPU\s+MEMORY\s+WINDOW`},
		"pods by kind":    {[]string{"get", "podmetrics", "-n", namespace}, `(?m)^NAME\s+CPU\s+MEMORY\s+WINDOW`},
		"nodes by kind":   {[]string{"describe", "nodemetrics"}, `(?m)^Kind:\s+NodeMetrics`},
		"core pods":       {[]string{"get", "pods", "-n", namespace}, `(?m)^NAME\s+READY\s+STATUS`},
		"label selector":  {[]string{"get", "pods.metrics.k8s.io", "-A", "-l", "app=no-such-app"}, `No resources found`},
		"paging":          {[]string{"get", "pods.metrics.k8s.io", "-A", "--chunk-size=1", "-o", "name"}, `podmetrics|pod.metrics|pods.metrics`},
		"explain":         {[]string{"explain", "metricsbackend.spec.resourceMetrics.scrape.interval"}, `Default:\s+15s`},
		"printer columns": {[]string{"get", "mb"}, `(?m)^NAME\s+READY\s+REASON\s+AVAILABLE\s+VERSIONS\s+REPLICAS\s+AGE`},
		"api-resources":   {[]string{"api-resources", "--api-group=metrics.k8s.io"}, `(?m)^pods\s+metrics.k8s.io/v1\s+true\s+PodMetrics`},
		"field selector":  {[]string{"get", "nodes.metrics.k8s.io", "--field-selector=metadata.name=no-such-node"}, `No resources found`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if out := kubectl(t, tc.args...); !regexp.MustCompile(tc.want).MatchString(out) {
				t.Errorf("kubectl %s: want %s in\n%s", strings.Join(tc.args, " "), tc.want, out)
			}
		})
	}
}

// kubectl explain knows the metrics too. kube-apiserver downloads the OpenAPI document of an aggregated API a second after its
// registration, and a minute later where that failed (kube-aggregator's openapiv3 controller), whatever discovery says by then.
func TestKubectlExplainMetrics(t *testing.T) {
	requireBackend(t)
	outcome.Eventually(t, 3*time.Minute, "pod metrics are explained", func(context.Context) error {
		out, err := run("kubectl", "explain", "pods.containers", "--api-version=metrics.k8s.io/v1")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if !regexp.MustCompile(`KIND:\s+PodMetrics`).MatchString(out) {
			return fmt.Errorf("want PodMetrics in:\n%s", out)
		}
		return nil
	})
}

// The roles view and edit may read pod metrics, and nobody else may.
func TestReaderRoles(t *testing.T) {
	requireBackend(t)
	const user = "e2e-reader"
	as := func(path string) error {
		out, err := run("kubectl", "get", "--raw", path, "--as="+user)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	path := "/apis/metrics.k8s.io/v1/namespaces/" + namespace + "/pods"
	if err := as(path); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("a user without a role: want Forbidden, got %v", err)
	}
	kubectl(t, "create", "rolebinding", user, "-n", namespace, "--clusterrole=view", "--user="+user)
	t.Cleanup(func() { _, _ = run("kubectl", "delete", "rolebinding", user, "-n", namespace, "--ignore-not-found") })
	// The aggregated role and serving's cache of answers take some seconds.
	outcome.Eventually(t, time.Minute, "a user with the role view may read pod metrics", func(context.Context) error { return as(path) })
}
