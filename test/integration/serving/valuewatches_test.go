//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bufio"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// stream begins a watch through kube-apiserver.
func stream(t *testing.T, config *rest.Config, path string) (*bufio.Reader, error) {
	t.Helper()
	c, err := rest.UnversionedRESTClientFor(unversioned(config))
	if err != nil {
		t.Fatal(err)
	}
	body, err := c.Get().RequestURI(path).Stream(t.Context())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = body.Close() })
	return bufio.NewReader(body), nil
}

func unversioned(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = clientscheme.Codecs.WithoutConversion()
	return config
}

// event reads the next event, as its type and its value.
func event(t *testing.T, lines *bufio.Reader) string {
	t.Helper()
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return "closed"
	}
	var e struct {
		Type   string
		Object json.RawMessage
	}
	if err := json.Unmarshal(line, &e); err != nil {
		t.Fatalf("decode %s: %v", line, err)
	}
	if e.Type != "ADDED" {
		return e.Type + " " + string(e.Object)
	}
	var v value
	if err := json.Unmarshal(e.Object, &v); err != nil {
		t.Fatalf("decode %s: %v", line, err)
	}
	return e.Type + " " + v.String()
}

// testValueWatches: all values at once, and then each new one.
func testValueWatches(t *testing.T, prometheus *fakePrometheus) {
	watches := map[string]struct{ first, then string }{
		queuePath + "?watch=true&labelSelector=queue%3Da":                                          {"ADDED queue=a 10", "ADDED queue=a 11"},
		"/apis/custom.metrics.k8s.io/v1beta2/watch/namespaces/default/pods/values-0/http_requests": {"ADDED values-0 3500m", "ADDED values-0 4500m"},
		requestsPath + "?watch=true&labelSelector=app%3Dvalues&fieldSelector=":                     {"ADDED values-0 3500m", "ADDED values-0 4500m"},
	}
	lines := map[string]*bufio.Reader{}
	for path, want := range watches {
		var err error
		if lines[path], err = stream(t, cluster.config, path); err != nil {
			t.Fatalf("watch %s: %v", path, err)
		}
		if got := event(t, lines[path]); got != want.first {
			t.Errorf("%s begins with %q, want %q", path, got, want.first)
		}
	}
	prometheus.set("11", "__name__", "queue_length", "queue", "a")
	prometheus.set("4.5", "__name__", "http_requests_total", "namespace", "default", "pod", "values-0")
	defer func() {
		prometheus.set("10", "__name__", "queue_length", "queue", "a")
		prometheus.set("3.5", "__name__", "http_requests_total", "namespace", "default", "pod", "values-0")
	}()
	for path, want := range watches {
		// Points of the time before come first, and of other pods in between.
		for {
			if got := event(t, lines[path]); got == want.then {
				break
			} else if !strings.HasPrefix(got, "ADDED ") {
				t.Errorf("%s: %q, want %q", path, got, want.then)
				break
			}
		}
	}
}

// testMetricCalledStatus: kube-apiserver authorizes it as a subresource of the Namespace, and serving as the metric.
func testMetricCalledStatus(t *testing.T) {
	path := "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/status"
	group := []string{"external.metrics.k8s.io"}
	metric := rbacv1.PolicyRule{APIGroups: group, Resources: []string{"status"}, Verbs: []string{"list"}}
	part := rbacv1.PolicyRule{APIGroups: group, Resources: []string{"namespaces/status"}, Verbs: []string{"get"}}
	grant(t, "has-both", metric, part)
	grant(t, "has-metric", metric)
	grant(t, "has-part", part)
	outcome.Eventually(t, 30*time.Second, "the roles are in force", func(context.Context) error { return getAs(t, asUser("has-both"), path) })
	for _, user := range []string{"has-metric", "has-part"} {
		if err := getAs(t, asUser(user), path); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want 403", user, err)
		}
	}
}
