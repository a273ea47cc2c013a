// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// rotate replaces authority and certificate, with the operator killed in the first rotation, and replaced in the last
// of several, after which they come from a Secret of the user's, and from the operator again: no consumer notices, and
// no pod is restarted. It is a companion of TestWatch.
func rotate(t *testing.T) {
	restorePart(t, func(spec, before *v1alpha1.MetricsBackendSpec) {
		spec.Serving.Certificates = before.Serving.Certificates
	})
	registered, err := apiServices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := startClients(t)
	pods := startsOfPods(t)
	n := cycles(t, "E2E_ROTATIONS", 1)
	began := time.Now()
	for i := range n {
		former := trustedNow(t)
		kubectl(t, "annotate", "--overwrite", "metricsbackend", backendName, fmt.Sprintf("%s=%d of test %d", v1alpha1.AnnotationRotate, i, began.Unix()))
		disturb(t, i, n)
		waitReplaced(t, former, len(registered))
	}
	t.Logf("%d rotations took %s", n, time.Since(began).Round(time.Second))

	if n > 1 {
		rotateByUser(t, len(registered))
	}
	if got := startsOfPods(t); got != pods {
		outcome.Unsafe(t, "pods were replaced or restarted:\n%s\nnow:\n%s", pods, got)
	}
	if got := finishClients(t, c).Departures("v1"); got != 0 {
		outcome.Unsafe(t, "v1 left discovery %d times", got)
	}
}

// rotateByUser has authority and certificate come from a Secret of the user's, and from the operator again.
func rotateByUser(t *testing.T, registered int) {
	t.Helper()
	former := trustedNow(t)
	provideCertificate(t, "provided-by-test")
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.Certificates = v1alpha1.CertificatesSpec{
			Mode: v1alpha1.CertificatesSecret, SecretRef: &v1alpha1.SecretReference{Name: "provided-by-test"},
		}
	})
	waitReplaced(t, former, registered)
	former = trustedNow(t)
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Certificates = v1alpha1.CertificatesSpec{} })
	waitReplaced(t, former, registered)
}

// trustedNow is what kube-apiserver verifies serving pods with.
func trustedNow(t *testing.T) servingcert.Bundle {
	t.Helper()
	service, err := getAPIService(t.Context(), "v1")
	if err != nil {
		t.Fatal(err)
	}
	return servingcert.ParseBundle(service.Spec.CABundle)
}

// apiServices are those of the backend.
func apiServices(ctx context.Context) ([]apiregistrationv1.APIService, error) {
	var services apiregistrationv1.APIServiceList
	err := suite.client.List(ctx, &services, backendLabel())
	return services.Items, err
}

// waitReplaced waits until every authority of former is out of all APIServices, of which
// there are so many, and of what pods mount, and the backend is ready.
func waitReplaced(t *testing.T, former servingcert.Bundle, registered int) {
	t.Helper()
	outcome.Eventually(t, 2*time.Minute, "the authority is replaced", func(ctx context.Context) error {
		var secret corev1.Secret
		if err := suite.client.Get(ctx, ctrlclient.ObjectKey{Namespace: namespace, Name: "metrics-serving-" + backendName + "-tls"}, &secret); err != nil {
			return err
		}
		bundles := map[string][]byte{"Secret": secret.Data[v1alpha1.SecretKeyCA]}
		services, err := apiServices(ctx)
		if err != nil {
			return err
		}
		if len(services) != registered {
			return fmt.Errorf("%d APIServices, want %d", len(services), registered)
		}
		for i := range services {
			bundles[services[i].Name] = services[i].Spec.CABundle
		}
		for name, pem := range bundles {
			bundle := servingcert.ParseBundle(pem)
			if len(bundle) != 1 || former.Contains(bundle) || !bytes.Equal(pem, bundles["Secret"]) {
				return fmt.Errorf("%s trusts %d authorities, among them former ones: %t", name, len(bundle), former.Contains(bundle))
			}
		}
		var backend v1alpha1.MetricsBackend
		if err := suite.client.Get(ctx, ctrlclient.ObjectKey{Name: backendName}, &backend); err != nil {
			return err
		}
		for _, condition := range backend.Status.Conditions {
			if condition.Type == v1alpha1.ConditionReady &&
				(condition.Status != metav1.ConditionTrue || condition.ObservedGeneration != backend.Generation) {
				return errors.New(condition.Message)
			}
		}
		return nil
	})
}

// provideCertificate makes the Secret that a user would keep.
func provideCertificate(t *testing.T, name string) {
	t.Helper()
	issuer := servingcert.NewIssuer(clock.RealClock{})
	authority, err := issuer.Authority("end-to-end-test")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := issuer.Leaf(authority, []string{"metrics-serving-" + backendName + "." + namespace + ".svc"})
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Type:       corev1.SecretTypeTLS,
		Data: map[string][]byte{
			v1alpha1.SecretKeyCertificate: leaf.Certificate,
			v1alpha1.SecretKeyPrivateKey:  leaf.Key,
			v1alpha1.SecretKeyCA:          authority.Certificate,
		},
	}
	t.Cleanup(func() { _ = suite.client.Delete(context.Background(), secret) })
	if err := suite.client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// startsOfPods tells which serving pods there are, and how often they started.
func startsOfPods(t *testing.T) string {
	t.Helper()
	var pods corev1.PodList
	if err := suite.client.List(t.Context(), &pods, serving()...); err != nil {
		t.Fatal(err)
	}
	out := ""
	for i := range pods.Items {
		for _, container := range pods.Items[i].Status.ContainerStatuses {
			out += fmt.Sprintf("%s %s: %d restarts\n", pods.Items[i].Name, container.Name, container.RestartCount)
		}
	}
	return out
}
