//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// asUser is the configuration of a user.
func asUser(user string, groups ...string) *rest.Config {
	config := rest.CopyConfig(cluster.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

func getAs(t *testing.T, config *rest.Config, path string) error {
	t.Helper()
	c, err := rest.UnversionedRESTClientFor(unversioned(config))
	if err != nil {
		t.Fatal(err)
	}
	return c.Get().RequestURI(path).Do(t.Context()).Error()
}

// grant lets a user do something in the namespace default.
func grant(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules}
	role, err := cluster.client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bind(t.Context(), cluster.client, "default", "ClusterRole", role.Name, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}); err != nil {
		t.Fatal(err)
	}
}

// testValueAccess: the resource of a role is the metric, for get and for both watches.
func testValueAccess(t *testing.T) {
	get, watch := []string{"get", "list"}, []string{"watch"}
	custom, external := []string{"custom.metrics.k8s.io"}, []string{"external.metrics.k8s.io"}
	grant(t, "polls", rbacv1.PolicyRule{APIGroups: custom, Resources: []string{"pods/http_requests"}, Verbs: get},
		rbacv1.PolicyRule{APIGroups: external, Resources: []string{"queue_length"}, Verbs: get})
	grant(t, "watches", rbacv1.PolicyRule{APIGroups: custom, Resources: []string{"pods/http_requests"}, Verbs: watch},
		rbacv1.PolicyRule{APIGroups: external, Resources: []string{"queue_length"}, Verbs: watch})
	grant(t, "others", rbacv1.PolicyRule{APIGroups: custom, Resources: []string{"pods/other"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: external, Resources: []string{"other"}, Verbs: []string{"*"}})
	customWatch := "/apis/custom.metrics.k8s.io/v1beta2/watch/namespaces/default/pods/*/http_requests"
	outcome.Eventually(t, 30*time.Second, "the roles are in force", func(context.Context) error {
		for _, path := range []string{requestsPath, queuePath} {
			if err := getAs(t, asUser("polls"), path); err != nil {
				return err
			}
		}
		for _, path := range []string{customWatch, queuePath + "?watch=true"} {
			if err := stream(t, asUser("watches"), path); err != nil {
				return err
			}
		}
		return nil
	})
	tests := map[string]map[string]bool{
		requestsPath:              {"polls": true, "watches": false, "others": false},
		queuePath:                 {"polls": true, "watches": false, "others": false},
		customWatch:               {"polls": false, "watches": true, "others": false},
		queuePath + "?watch=true": {"polls": false, "watches": true, "others": false},
	}
	for path, users := range tests {
		for user, allowed := range users {
			var err error
			if strings.Contains(path, "watch") {
				err = stream(t, asUser(user), path)
			} else {
				err = getAs(t, asUser(user), path)
			}
			if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
				t.Errorf("%s of %s: %v, want allowed: %t", path, user, err, allowed)
			}
		}
	}
}

// testAllNamespaces: a request for all namespaces needs a permission in all.
func testAllNamespaces(t *testing.T) {
	outcome.Eventually(t, 10*time.Second, "an administrator reads it", func(context.Context) error {
		return wantValues(t.Context(), allQueuesPath+"?labelSelector=queue%3Da", "queue=a 10")
	})
	for _, user := range []string{"polls", "watches", "others"} {
		if err := getAs(t, asUser(user), allQueuesPath); !apierrors.IsForbidden(err) {
			t.Errorf("%s, who has a role in one namespace: %v", user, err)
		}
	}
}

// testAutoscalerNames: the names of external metrics that an autoscaler may have.
func testAutoscalerNames(t *testing.T) {
	for name, allowed := range map[string]bool{`cloud\|queue`: true, "cloud/queue": false} {
		target := resource.MustParse("30")
		_, err := cluster.client.AutoscalingV2().HorizontalPodAutoscalers("default").Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: "values"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", APIVersion: "apps/v1", Name: "values"}, MaxReplicas: 3,
				Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
					Metric: autoscalingv2.MetricIdentifier{Name: name},
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &target},
				}}},
			},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if allowed && err != nil || !allowed && !apierrors.IsInvalid(err) {
			t.Errorf("an autoscaler on %s: %v, want allowed: %t", name, err, allowed)
		}
	}
}

// stream begins a watch through kube-apiserver.
func stream(t *testing.T, config *rest.Config, path string) error {
	t.Helper()
	c, err := rest.UnversionedRESTClientFor(unversioned(config))
	if err != nil {
		t.Fatal(err)
	}
	body, err := c.Get().RequestURI(path).Stream(t.Context())
	if err == nil {
		t.Cleanup(func() { _ = body.Close() })
	}
	return err
}

func unversioned(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = clientscheme.Codecs.WithoutConversion()
	return config
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
