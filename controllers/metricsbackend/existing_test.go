// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// existingCluster has a backend for the APIServices of metrics-server, which serves
// v1beta1 alone, registered by its manifests.
func existingCluster(fc *fakeCluster) {
	stockCluster(fc)
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
		existing(spec)
		adopting(v1alpha1.AdoptionAlways)(spec)
	})
	becomeReady(fc)
}

// An implementation that serves v1beta1 alone is complete.
func TestExistingServesOneVersion(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "existing", existingCluster)
	fc.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "")
	want := map[string]v1alpha1.APIServiceState{"v1.metrics.k8s.io": "Pending", "v1beta1.metrics.k8s.io": "Available"}
	got := map[string]v1alpha1.APIServiceState{}
	for _, s := range fc.backend().Status.APIServices {
		got[s.Name] = s.State
		if s.Name == "v1.metrics.k8s.io" && !strings.Contains(s.Message, "Service kube-system/metrics-server does not serve it at endpoint 192.168.0.1:10250") {
			t.Errorf("v1: message %q", s.Message)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	fc.wantCondition(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionTrue, "", "left out: v1.metrics.k8s.io")
	if len(fc.pods()) > 0 || fc.backend().Status.Serving != nil {
		t.Errorf("%d pods, serving %v: want nothing deployed", len(fc.pods()), fc.backend().Status.Serving)
	}
	fc.guestHasNoRights()
}

func (fc *fakeCluster) guestHasNoRights() {
	fc.t.Helper()
	var account corev1.ServiceAccount
	fc.get(client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-cluster-guest"}, &account)
	var roles rbacv1.RoleBindingList
	var clusterRoles rbacv1.ClusterRoleBindingList
	fc.list(&roles)
	fc.list(&clusterRoles)
	if len(roles.Items)+len(clusterRoles.Items) > 0 {
		fc.t.Errorf("something is granted: %v %v", roles.Items, clusterRoles.Items)
	}
}

// TestExistingIsUnhealthy has each failure of the implementation, present from the start.
func TestExistingIsUnhealthy(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		setUp     func(*fakeCluster)
		condition string
		reason    string
		message   string
		stalled   bool
	}{
		"no Service": {
			setUp:     func(fc *fakeCluster) { fc.delete(otherService(fc)) },
			condition: v1alpha1.ConditionServingReady, reason: v1alpha1.ReasonServiceMissing, stalled: true,
			message: "Service kube-system/metrics-server does not exist",
		},
		"no such port": {
			setUp: func(fc *fakeCluster) {
				service := otherService(fc)
				service.Spec.Ports[0].Port = 4443
				fc.update(service)
			},
			condition: v1alpha1.ConditionServingReady, reason: v1alpha1.ReasonServiceMissing, stalled: true,
			message: "has no port 443",
		},
		"no ready endpoint": {
			setUp:     func(fc *fakeCluster) { fc.scaleMetricsServer(0) },
			condition: v1alpha1.ConditionServingReady, reason: v1alpha1.ReasonNoReadyEndpoint,
			message: "kubectl get endpointslices -n kube-system -l kubernetes.io/service-name=metrics-server",
		},
		"one endpoint does not answer": {
			setUp:     func(fc *fakeCluster) { fc.other.failing["192.168.0.2:10250"] = errors.New("dial: connection refused") },
			condition: v1alpha1.ConditionServingReady, reason: v1alpha1.ReasonProbeFailed,
			message: "cannot ask endpoint 192.168.0.2:10250",
		},
		"it serves no metrics": {
			setUp:     func(fc *fakeCluster) { fc.scaleMetricsServer(2) },
			condition: v1alpha1.ConditionServingReady, reason: v1alpha1.ReasonVersionNotServed,
			message: "serves no version that the spec names",
		},
		"the caBundle is none": {
			setUp: func(fc *fakeCluster) {
				fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
					spec.Existing.InsecureSkipTLSVerify, spec.Existing.CABundle = false, []byte("none")
				})
			},
			condition: v1alpha1.ConditionStalled, reason: v1alpha1.ReasonInvalid, stalled: true,
			message: "spec.existing.caBundle",
		},
		"it names the operator's own Service": {
			setUp: func(fc *fakeCluster) {
				fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
					spec.Existing.Service = v1alpha1.ExistingService{Namespace: systemNamespace, Name: "metrics-serving-cluster"}
				})
			},
			condition: v1alpha1.ConditionStalled, reason: v1alpha1.ReasonInvalid, stalled: true,
			message: "which the operator itself makes",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := newFakeCluster(t, newBackend(existing))
			fc.runMetricsServer(2, v1beta1)
			tc.setUp(fc)
			r := fc.reconciler()
			fc.reconcileRounds(r, 5)
			fc.wantCondition(tc.condition, "", tc.reason, tc.message)
			fc.wantCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, "")
			if stalled := fc.condition(v1alpha1.ConditionStalled).Status == metav1.ConditionTrue; stalled != tc.stalled {
				t.Errorf("Stalled is %t, want %t", stalled, tc.stalled)
			}
			fc.wantRegistered()
		})
	}
}

func otherService(fc *fakeCluster) *corev1.Service {
	fc.t.Helper()
	service := &corev1.Service{}
	fc.get(client.ObjectKey{Namespace: "kube-system", Name: "metrics-server"}, service)
	return service
}

func (fc *fakeCluster) authorityPEM() []byte {
	fc.t.Helper()
	authority, err := servingcert.NewIssuer(fc.clock).Authority("someone")
	fc.must(err)
	return authority.Certificate
}

// Versions follow the implementation: added once each endpoint serves them, retired at
// once.
func TestExistingChanges(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "existing", existingCluster)
	fc.other.checked = false // their own rollback takes v1 away before anybody can know
	r := fc.reconciler()
	fc.other.serves["192.168.0.1:10250"] = append(fc.other.serves["192.168.0.1:10250"], v1)
	fc.reconcileRounds(r, 3)
	fc.wantRegistered("v1beta1") // one of two endpoints serves v1
	fc.scaleMetricsServer(2, v1, v1beta1)
	fc.reconcileUntil(r, func() bool { return fc.isReady() && fc.isRegistered(v1) })
	fc.other.serves["192.168.0.2:10250"] = fc.other.serves["192.168.0.2:10250"][1:]
	mustReconcile(t, r)
	mustReconcile(t, r)
	fc.wantRegistered("v1beta1")
	fc.scaleMetricsServer(2, v1beta1)
	fc.reconcileUntil(r, fc.isReady)
}

// Without its Service the APIServices would block the deletion of every namespace.
func TestExistingIsTakenAway(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		happen func(*fakeCluster)
		reason string
	}{
		"Service deleted": {
			happen: func(fc *fakeCluster) { fc.delete(otherService(fc)) },
			reason: v1alpha1.ReasonServiceMissing,
		},
		"its namespace ends": {
			happen: func(fc *fakeCluster) {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", Finalizers: []string{"kubernetes"}}}
				fc.create(namespace)
				fc.delete(namespace)
			},
			reason: v1alpha1.ReasonNamespaceTerminating,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "existing", existingCluster)
			r := fc.reconciler()
			tc.happen(fc)
			fc.reconcileUntil(r, func() bool {
				return fc.pointsToNow(v1beta1) == "" && fc.condition(v1alpha1.ConditionStaleAPIServicesRemoved).Status == metav1.ConditionTrue
			})
			fc.wantCondition(v1alpha1.ConditionStalled, "", tc.reason)
		})
	}
}

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
