// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// mountedCertificate is what a pod serves: what its Secret held some time ago, since
// a kubelet brings a change late, and the last that it held, once it is gone.
type mountedCertificate struct {
	key     client.ObjectKey
	network *podNetwork

	mu      sync.Mutex
	served  *tls.Certificate
	noticed time.Time
}

func (m *mountedCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var secret corev1.Secret
	if err := m.network.suite.admin.Get(context.Background(), m.key, &secret); err != nil {
		if m.served != nil {
			return m.served, nil
		}
		return nil, err
	}
	pair, err := tls.X509KeyPair(secret.Data[v1alpha1.SecretKeyCertificate], secret.Data[v1alpha1.SecretKeyPrivateKey])
	switch {
	case err != nil:
		return m.served, err
	case m.served == nil || bytes.Equal(m.served.Certificate[0], pair.Certificate[0]):
		m.served, m.noticed = &pair, time.Time{}
	case m.noticed.IsZero():
		m.noticed = time.Now()
	case time.Since(m.noticed) > m.network.behaviour().secretDelay:
		m.served, m.noticed = &pair, time.Time{}
	}
	return m.served, nil
}

// The authority is rotated, then a Secret of the user's takes its place, is renewed
// by another authority, and goes again: no request fails, though pods get each
// certificate late and one after another.
func TestCertificatesChangeUnderLoad(t *testing.T) {
	suite := take(t)
	createBackend(t, suite, newBackend("rotated"))
	waitReady(t, suite, "rotated")
	suite.pods.behave(t, behaviour{secretDelay: 2 * time.Second})
	load := startRequests(t, suite, "v1", "v1beta1")
	change := func(name string, change func()) {
		former := trusted(t, suite)
		change()
		waitTrusted(t, suite, "rotated", former)
		t.Logf("%s: done", name)
	}
	edit := func(certificates v1alpha1.CertificatesSpec) {
		changeBackend(t, suite, "rotated", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Certificates = certificates })
	}
	change("rotation", func() {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationRotate+`":"now"}}}`))
		if err := suite.admin.Patch(t.Context(), newBackend("rotated"), patch); err != nil {
			t.Fatal(err)
		}
	})
	change("a Secret", func() {
		writeCertificate(t, suite, "mine", nil)
		edit(v1alpha1.CertificatesSpec{Mode: v1alpha1.CertificatesSecret, SecretRef: &v1alpha1.SecretReference{Name: "mine"}})
	})
	change("the Secret renewed", func() {
		writeCertificate(t, suite, "mine", nil)
		// The operator does not watch what is not its own: it looks each minute, or when an APIService changes.
		recheck(t, suite)
	})
	change("managed again", func() { edit(v1alpha1.CertificatesSpec{}) })
	load.stop(t)
	var authority corev1.Secret
	if err := suite.admin.Get(t.Context(), client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-rotated-ca"}, &authority); err != nil {
		t.Fatal(err)
	}
	if len(authority.Data) != 2 {
		t.Errorf("the authority's Secret has %d keys, want the authority alone", len(authority.Data))
	}
}

func trusted(t *testing.T, suite *controlPlane) servingcert.Bundle {
	t.Helper()
	service, err := getAPIService(t.Context(), suite, "v1")
	if err != nil {
		t.Fatal(err)
	}
	return servingcert.ParseBundle(service.Spec.CABundle)
}

// waitTrusted waits until none of the former authorities is trusted, and the backend
// is ready.
func waitTrusted(t *testing.T, suite *controlPlane, name string, former servingcert.Bundle) {
	t.Helper()
	outcome.Eventually(t, 2*patience, "the authority is replaced", func(ctx context.Context) error {
		for _, version := range []string{"v1", "v1beta1"} {
			service, err := getAPIService(ctx, suite, version)
			if err != nil {
				return err
			}
			if now := servingcert.ParseBundle(service.Spec.CABundle); len(now) != 1 || former.Contains(now) {
				return fmt.Errorf("%d authorities in %s: %s", len(now), version, show(getBackend(t, suite, name)))
			}
		}
		return nil
	})
	waitReady(t, suite, name)
}

// writeCertificate makes a certificate of a new authority, in a Secret as a user or
// cert-manager would.
func writeCertificate(t *testing.T, suite *controlPlane, name string, labels map[string]string) {
	t.Helper()
	issuer := servingcert.NewIssuer(clock.RealClock{})
	authority, err := issuer.Authority("test")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := issuer.Leaf(authority, []string{"metrics-serving-rotated." + systemNamespace + ".svc"})
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name, Labels: labels}, Type: corev1.SecretTypeTLS}
	secret.Data = map[string][]byte{"tls.crt": leaf.Certificate, "tls.key": leaf.Key, "ca.crt": authority.Certificate}
	err = suite.admin.Create(t.Context(), secret)
	if apierrors.IsAlreadyExists(err) {
		err = suite.admin.Update(t.Context(), secret)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = suite.admin.Delete(context.Background(), secret) })
}

// Without cert-manager its mode says so; once it is installed the operator asks it,
// with its own rights, serves what it issues, and leaves nothing behind. This test
// takes cert-manager's place.
func TestCertManager(t *testing.T) {
	suite := take(t)
	createBackend(t, suite, newBackend("rotated"))
	waitReady(t, suite, "rotated")
	load := startRequests(t, suite, "v1", "v1beta1")
	former := trusted(t, suite)
	changeBackend(t, suite, "rotated", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.Certificates = v1alpha1.CertificatesSpec{
			Mode:        v1alpha1.CertificatesCertManager,
			CertManager: &v1alpha1.CertManagerSpec{IssuerRef: v1alpha1.IssuerReference{Name: "ours"}},
		}
	})
	waitCondition(t, suite, "rotated", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonCertManagerMissing)

	mustKubectl(t, suite, "apply", "-f", "test/integration/operator/testdata/certificates.yaml")
	t.Cleanup(func() {
		if out, err := kubectl(suite, "delete", "-f", "test/integration/operator/testdata/certificates.yaml"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	var request *unstructured.Unstructured
	find := func(ctx context.Context) (err error) {
		request = unstructuredOf(map[string]any{"apiVersion": "cert-manager.io/v1", "kind": "Certificate"})
		err = suite.admin.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-rotated"}, request)
		if err != nil {
			return fmt.Errorf("%w: %s", err, show(getBackend(t, suite, "rotated")))
		}
		return nil
	}
	outcome.Eventually(t, patience, "cert-manager is asked", find)
	labels, _, _ := unstructured.NestedStringMap(request.Object, "spec", "secretTemplate", "labels")
	name, _, _ := unstructured.NestedString(request.Object, "spec", "secretName")
	waitCondition(t, suite, "rotated", v1alpha1.ConditionCertificatesValid, metav1.ConditionFalse, v1alpha1.ReasonProgressing)
	writeCertificate(t, suite, name, labels)
	waitTrusted(t, suite, "rotated", former)

	former = trusted(t, suite)
	changeBackend(t, suite, "rotated", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Certificates = v1alpha1.CertificatesSpec{} })
	waitTrusted(t, suite, "rotated", former)
	load.stop(t)
	outcome.Eventually(t, patience, "cert-manager is no longer asked", func(ctx context.Context) error {
		if err := find(ctx); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the Certificate is still there"), err)
		}
		return nil
	})
}
