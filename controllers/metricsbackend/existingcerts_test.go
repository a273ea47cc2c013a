// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// A wrong spec.existing.caBundle is reported as such with the real client, which converts
// errors of crypto/tls.
func TestExistingIsNotTrusted(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend(existing))
	fc.runMetricsServer(1, v1beta1)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Existing.InsecureSkipTLSVerify, spec.Existing.CABundle = false, fc.authorityPEM()
	})
	o := fc.reconciler().Options
	o.Pods = servingclient.NewClient(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	})
	r := New(o)
	fc.reconcileRounds(r, 5)
	const want = "spec.existing.caBundle does not verify endpoint 192.168.0.1:10250 as metrics-server.kube-system.svc"
	c := fc.condition(v1alpha1.ConditionCertificatesValid)
	if c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonCertificateMismatch || !strings.Contains(c.Message, want) {
		t.Errorf("CertificatesValid is %+v, want %s with %q", c, v1alpha1.ReasonCertificateMismatch, want)
	}
	fc.wantRegistered()
}

// An APIService that a finalizer keeps is checked no more often than other work, and the
// status names the finalizer.
func TestExistingIsTakenAwayAndHeld(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "existing", existingCluster)
	r := fc.reconciler()
	fc.editAPIService(v1beta1, func(s *apiregistrationv1.APIService) { s.Finalizers = []string{"example.com/keeps"} })
	fc.delete(otherService(fc))
	mustReconcile(t, r) // the intent
	mustReconcile(t, r) // the deletion
	for range 5 {
		result, err := reconcileOnce(t, r)
		if err != nil || result.RequeueAfter < progressMin {
			t.Fatalf("looks again after %s, error %v", result.RequeueAfter, err)
		}
		fc.step()
	}
	fc.wantCondition(v1alpha1.ConditionStaleAPIServicesRemoved, "", "", "still exists: something holds it with a finalizer")
	fc.editAPIService(v1beta1, func(s *apiregistrationv1.APIService) { s.Finalizers = nil })
	fc.reconcileUntil(r, func() bool {
		return fc.condition(v1alpha1.ConditionStaleAPIServicesRemoved).Status == metav1.ConditionTrue
	})
}
