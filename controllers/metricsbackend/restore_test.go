// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// adoptedCluster has a backend with our own pods that adopted v1beta1 from
// metrics-server, which still runs.
func adoptedCluster(fc *fakeCluster) {
	stockCluster(fc)
	fc.change(adopting(v1alpha1.AdoptionAlways))
	becomeReady(fc)
}

// Spec and labels are those of metrics-server's manifests again, and our pods answer
// until every kube-apiserver follows.
func TestRestorePrevious(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		happen func(*fakeCluster)
		done   func(*fakeCluster) bool
	}{
		"deleted": {
			happen: func(fc *fakeCluster) { fc.delete(fc.backend()) },
			done:   (*fakeCluster).isGone,
		},
		// One endpoint of several is no reason to remove the API.
		"deleted, and one endpoint does not answer": {
			happen: func(fc *fakeCluster) {
				fc.other.failing["192.168.0.1:10250"] = errors.New("refused")
				fc.delete(fc.backend())
			},
			done: (*fakeCluster).isGone,
		},
		"deleted, after the labels of the spec were changed": {
			happen: func(fc *fakeCluster) {
				fc.change(func(s *v1alpha1.MetricsBackendSpec) { s.Serving.Labels = map[string]string{"team": "a"} })
				fc.reconcileUntil(fc.live(), func() bool { return fc.isReady() && fc.apiService(v1beta1).Labels["team"] == "a" })
				fc.delete(fc.backend())
			},
			done: (*fakeCluster).isGone,
		},
		"version taken out of the spec": {
			happen: func(fc *fakeCluster) {
				fc.change(onlyV1)
			},
			done: (*fakeCluster).isReady,
		},
		"version taken out of the spec that autoscalers use, and theirs serves, too": {
			happen: func(fc *fakeCluster) {
				fc.consumers = everyPod(hpaOf(v1beta1Name, fc.today()))
				fc.change(onlyV1)
			},
			done: (*fakeCluster).isReady,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "adopted", adoptedCluster)
			uid := fc.apiService(v1beta1).UID
			r := fc.live()
			tc.happen(fc)
			fc.reconcileUntil(r, func() bool { return tc.done(fc) })
			got := fc.apiService(v1beta1)
			if got.UID != uid {
				t.Error("it was deleted and created again")
			}
			want := stockAPIService()
			if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
				t.Errorf("spec (-stock +restored):\n%s", diff)
			}
			if diff := cmp.Diff(want.Labels, got.Labels); diff != "" {
				t.Errorf("labels (-stock +restored):\n%s", diff)
			}
			if len(got.Annotations) > 0 {
				t.Errorf("annotations left: %v", got.Annotations)
			}
			wantEvent(t, r, "VersionHandedBack", "handed APIService v1beta1.metrics.k8s.io back to Service kube-system/metrics-server")
		})
	}
}

// A chart that makes a new authority at each upgrade writes it together with its Service. The operator corrects both, trusts the
// new one beside ours, and hands the APIService back with it.
func TestNewAuthorityIsRecorded(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "adopted", adoptedCluster)
	r := fc.live()
	fieldManagers()["server-side apply"](fc)
	upgraded := fc.apiService(v1beta1)
	upgraded.Spec.CABundle = []byte("THEIR NEW CA")
	fc.update(upgraded, client.FieldOwner("gitops-controller"))
	fc.reconcileUntil(r, func() bool { return fc.pointsToNow(v1beta1) == ourService && fc.isReady() })
	if got := string(fc.apiService(v1beta1).Spec.CABundle); !strings.HasPrefix(got, "THEIR NEW CA\n# metricsbackend.io/backend=") {
		t.Errorf("caBundle %q", got)
	}
	fc.delete(fc.backend())
	fc.reconcileUntil(r, fc.isGone)
	want := stockAPIService().Spec
	want.CABundle = []byte("THEIR NEW CA")
	if diff := cmp.Diff(want, fc.apiService(v1beta1).Spec); diff != "" {
		t.Errorf("(-theirs +restored):\n%s", diff)
	}
}

// A previous owner that does not serve the version is not restored: an APIService without
// endpoints blocks the deletion of every namespace.
func TestRestoreIsNotPossible(t *testing.T) {
	t.Parallel()
	annotate := func(text string) func(*fakeCluster) {
		return func(fc *fakeCluster) {
			fc.editAPIService(v1beta1, func(s *apiregistrationv1.APIService) { s.Annotations[v1alpha1.AnnotationPreviousOwner] = text })
		}
	}
	const impossible, silent = "HandBackImpossible", "PreviousOwnerSilent"
	cases := map[string]struct {
		setUp func(*fakeCluster)
		event []string
		// patient: it may recover, and is waited for.
		patient bool
		// forbidden: the operator may delete the APIService, but not write it.
		forbidden bool
	}{
		"a newer operator took it over": {setUp: func(*fakeCluster) {}, event: []string{impossible, "not by name"}, forbidden: true},
		"its Service is gone": {
			setUp: func(fc *fakeCluster) { fc.delete(otherService(fc)) },
			event: []string{silent, "Service kube-system/metrics-server does not exist"},
		},
		"it has no ready endpoint": {
			setUp: func(fc *fakeCluster) { fc.scaleMetricsServer(0) },
			event: []string{silent, "it has no ready endpoint"}, patient: true,
		},
		"no endpoint answers": {
			setUp: func(fc *fakeCluster) {
				fc.other.failing["192.168.0.1:10250"], fc.other.failing["192.168.0.2:10250"] = errors.New("refused"), errors.New("refused")
			},
			event: []string{silent, "endpoint 192.168.0.1:10250 cannot be asked: refused"}, patient: true,
		},
		"it does not serve the version any more": {
			setUp: func(fc *fakeCluster) { fc.scaleMetricsServer(2, v1) },
			event: []string{silent, "endpoint 192.168.0.1:10250 does not serve it"},
		},
		"the annotation is no JSON":         {setUp: annotate("{"), event: []string{impossible, "unexpected end of JSON"}},
		"the annotation is empty":           {setUp: annotate(""), event: []string{impossible, "read annotation"}},
		"the annotation names no Service":   {setUp: annotate(`{"groupPriorityMinimum":1,"versionPriority":1}`), event: []string{impossible, "service.name"}},
		"the annotation's port is none":     {setUp: annotate(`{"service":{"namespace":"a","name":"b","port":70000},"groupPriorityMinimum":1,"versionPriority":1}`), event: []string{impossible, "service.port"}},
		"the annotation's priority is none": {setUp: annotate(`{"service":{"namespace":"a","name":"b"},"groupPriorityMinimum":1,"versionPriority":-4}`), event: []string{impossible, "versionPriority"}},
		"the annotation names our own Service": {
			setUp: annotate(`{"service":{"namespace":"operator-ns","name":"metrics-serving-cluster"},"groupPriorityMinimum":1,"versionPriority":1}`),
			event: []string{impossible, "which is this MetricsBackend's own"},
		},
		"the annotation verifies both ways": {
			setUp: annotate(`{"service":{"namespace":"a","name":"b"},"caBundle":"YQ==","insecureSkipTLSVerify":true,"groupPriorityMinimum":1,"versionPriority":1}`),
			event: []string{impossible, "caBundle is set although"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "adopted", adoptedCluster)
			r := fc.live(intercepted(func(c call, make func() error) error {
				if tc.forbidden && c.name == "update *v1.APIService v1beta1.metrics.k8s.io" {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "apiservices"}, "v1beta1.metrics.k8s.io", errors.New("not by name"))
				}
				return make()
			}))
			tc.setUp(fc)
			fc.delete(fc.backend())
			mustReconcile(t, r)
			if waits := fc.isRegistered(v1beta1); waits != tc.patient {
				t.Errorf("waits %t, want %t", waits, tc.patient)
			}
			if tc.patient {
				fc.wantCondition(v1alpha1.ConditionReady, "", "", "waits up to 30s for Service kube-system/metrics-server")
			}
			fc.reconcileUntil(r, fc.isGone)
			if err := fc.raw.Get(context.Background(), client.ObjectKey{Name: "v1beta1.metrics.k8s.io"}, &apiregistrationv1.APIService{}); !apierrors.IsNotFound(err) {
				t.Errorf("the APIService is still there: %v", err)
			}
			wantEvent(t, r, tc.event...)
		})
	}
}

// What may fail for ever keeps no deletion. Without a token the previous owner is not asked,
// and gets the APIService if its endpoints are ready; one that cannot be read does not.
func TestRestoreWithoutRights(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		fails string
		// restarts: it had no ready endpoint until the deletion had waited for 20 s.
		restarts bool
		waits    string
		event    []string
		target   string
	}{
		"the guest's token": {
			fails: "create token", waits: "it cannot be asked: Forbidden", event: []string{"VersionHandedBack"}, target: metricsServer,
		},
		"the guest's token, after its pods restarted": {
			fails: "create token", restarts: true, waits: "it cannot be asked: Forbidden", event: []string{"VersionHandedBack"}, target: metricsServer,
		},
		"the guest's account": {
			fails: "apply *v1.ServiceAccountApplyConfiguration", waits: "it cannot be asked: Forbidden", event: []string{"VersionHandedBack"}, target: metricsServer,
		},
		"its endpoints": {
			fails: "list *v1.EndpointSliceList ", waits: "it cannot be read: Forbidden",
			event: []string{"PreviousOwnerSilent", "it cannot be read: Forbidden"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "adopted", adoptedCluster)
			r := fc.live(intercepted(func(c call, make func() error) error {
				if c.name == tc.fails {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "anything"}, "", errors.New("no"))
				}
				return make()
			}))
			if tc.restarts {
				fc.scaleMetricsServer(0)
			}
			fc.delete(fc.backend())
			_, _ = reconcileOnce(t, r)
			if tc.restarts {
				fc.clock.Step(20 * time.Second)
				fc.scaleMetricsServer(2, v1beta1)
				mustReconcile(t, r)
			}
			fc.wantCondition(v1alpha1.ConditionReady, "", "", "waits up to 30s for Service kube-system/metrics-server, to which it is handed back: "+tc.waits)
			fc.reconcileUntil(r, fc.isGone)
			fc.wantPointsTo(v1beta1, tc.target)
			wantEvent(t, r, tc.event...)
		})
	}
}
