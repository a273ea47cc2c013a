//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// loseAuthenticationConfig deletes the ConfigMap and, until bringBack, prevents kube-apiserver from creating it again.
func (c *controlPlane) loseAuthenticationConfig(t *testing.T) (bringBack func()) {
	t.Helper()
	const policy = "no-authentication-config"
	policies := c.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := c.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	configs := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	ctx := context.WithoutCancel(t.Context())
	lost, err := configs.Get(ctx, authenticationConfig, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	allow := func() {
		for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{bindings.Delete, policies.Delete} {
			if err := remove(ctx, policy, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("remove the admission policy: %v", err)
			}
		}
	}
	t.Cleanup(allow)
	_, err = policies.Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				ResourceNames: []string{authenticationConfig},
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "lost on purpose"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = bindings.Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	again := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: authenticationConfig}, Data: lost.Data}
	outcome.Eventually(t, time.Minute, "the admission policy is in force", func(context.Context) error {
		_, err := configs.Create(ctx, again, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "lost on purpose") {
			return fmt.Errorf("not denied: %w", err)
		}
		return nil
	})
	if err := configs.Delete(ctx, authenticationConfig, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() {
		allow()
		outcome.Eventually(t, time.Minute, "the ConfigMap is back", func(context.Context) error {
			// kube-apiserver tries again within a minute; an administrator need not wait.
			if _, err := configs.Create(ctx, again, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
	}
}

// TestAuthenticationConfigMissing: without the ConfigMap by which kube-apiserver is authenticated, a running process
// continues with its last content, one that starts refuses every request and logs what it waits for, and both recover
// without a restart.
func TestAuthenticationConfigMissing(t *testing.T) {
	p, _ := startAlone(t, "knowing")
	p.waitReady(t)
	cluster.registerBoth(t, "knowing", p.port)
	l := startLoad(t, 2)
	bringBack := cluster.loseAuthenticationConfig(t)
	late := startOn(t, "knowing")
	outcome.Eventually(t, 30*time.Second, "the running process says that it is gone", func(context.Context) error {
		return p.logged(`err="it does not exist" configMap="kube-system/` + authenticationConfig + `"`)
	})
	outcome.Eventually(t, 30*time.Second, "the starting process explains itself", func(context.Context) error {
		err := late.ready(t.Context())
		if err == nil {
			t.Fatal("it is ready without knowing kube-apiserver")
		}
		if want := "[-]authentication-config failed"; !strings.Contains(err.Error(), want) {
			return fmt.Errorf("%q is not in: %w", want, err)
		}
		return late.logged(`gate="authentication-config" reason="waiting for ConfigMap`)
	})
	if status, err := late.asProxy(t, cluster.frontProxy, readerUser, "/apis/metrics.k8s.io/v1/nodes"); err != nil || status != http.StatusUnauthorized {
		t.Errorf("the starting process answers kube-apiserver with %d, %v; want 401", status, err)
	}
	if err := p.ready(t.Context()); err != nil {
		t.Errorf("the running process: %v", err)
	}
	l.wantAnswers(t, 50, time.Minute, "requests go on meanwhile")
	bringBack()
	outcome.Eventually(t, time.Minute, "the starting process becomes ready", func(context.Context) error { return late.ready(t.Context()) })
	outcome.Eventually(t, 30*time.Second, "it knows kube-apiserver", late.wantAsProxy(t, cluster.frontProxy, http.StatusOK))
	l.finish(t)
}
