// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// The stock APIService is taken over in one write that carries what it was, and is
// the same again after the backend is deleted. Its clients notice nothing.
func TestAdoptionAndHandBack(t *testing.T) {
	stock := installMetricsServer(t)
	load := startRequests(t, "v1beta1")
	seen := watchAPIService(t, stock.Name)
	createBackend(t, newBackend("cluster", adopting(v1alpha1.AdoptionAlways)))
	waitReady(t, "cluster")
	states := seen()
	i := 0
	for i < len(states) && states[i].Spec.Service.Name == "metrics-server" {
		if len(states[i].Annotations) > 0 || states[i].Labels[v1alpha1.LabelBackend] != "" {
			t.Errorf("before the takeover: %+v", states[i].ObjectMeta)
		}
		i++
	}
	if i == len(states) {
		t.Fatalf("the takeover was not seen in %d states", len(states))
	}
	taken := states[i]
	var record v1alpha1.PreviousOwner
	if err := json.Unmarshal([]byte(taken.Annotations[v1alpha1.AnnotationPreviousOwner]), &record); err != nil {
		t.Fatalf("record in the state of the takeover: %v", err)
	}
	record.Labels = nil
	want := v1alpha1.PreviousOwner{
		Service:               v1alpha1.ExistingService{Namespace: "kube-system", Name: "metrics-server", Port: ptr.To[int32](443)},
		InsecureSkipTLSVerify: true, GroupPriorityMinimum: 100, VersionPriority: 100,
	}
	if diff := cmp.Diff(want, record); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if taken.UID != stock.UID || taken.Spec.InsecureSkipTLSVerify || len(taken.Spec.CABundle) == 0 || taken.Labels[v1alpha1.LabelBackend] != "cluster" {
		t.Errorf("the state of the takeover: %+v", taken)
	}
	deleteBackend(t, "cluster")
	load.stop(t)
	back, err := getAPIService(t.Context(), "v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stock.Spec, back.Spec); diff != "" {
		t.Errorf("spec (-stock +handed back):\n%s", diff)
	}
	if diff := cmp.Diff(stock.Labels, back.Labels); diff != "" || len(back.Annotations) > 0 || back.UID != stock.UID {
		t.Errorf("annotations %v, labels (-stock +handed back):\n%s", back.Annotations, diff)
	}
	if _, err := getAPIService(t.Context(), "v1"); !apierrors.IsNotFound(err) {
		t.Errorf("v1 is still registered: %v", err)
	}
}

// watchAPIService returns a function that returns each state of the APIService so far.
func watchAPIService(t *testing.T, name string) func() []apiregistrationv1.APIService {
	t.Helper()
	w, err := suite.admin.Watch(t.Context(), &apiregistrationv1.APIServiceList{},
		&client.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	var mu sync.Mutex
	var states []apiregistrationv1.APIService
	go func() {
		for event := range w.ResultChan() {
			if service, ok := event.Object.(*apiregistrationv1.APIService); ok {
				mu.Lock()
				states = append(states, *service)
				mu.Unlock()
			}
		}
	}()
	return func() []apiregistrationv1.APIService {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(states)
	}
}

// Without its Service an APIService would block the deletion of every namespace.
func TestHandBackWithoutService(t *testing.T) {
	installMetricsServer(t)
	createBackend(t, newBackend("cluster", adopting(v1alpha1.AdoptionAlways)))
	waitReady(t, "cluster")
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "metrics-server"}}
	if err := suite.admin.Delete(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	deleteBackend(t, "cluster")
	if _, err := getAPIService(t.Context(), "v1beta1"); !apierrors.IsNotFound(err) {
		t.Errorf("the APIService is still there: %v", err)
	}
	if got := discovered(t); len(got) > 0 {
		t.Errorf("discovery lists %v", got)
	}
}

// An implementation of someone else: its APIService kept, moved to our pods, and
// back. Its clients notice nothing.
func TestExistingAndServing(t *testing.T) {
	stock := installMetricsServer(t)
	load := startRequests(t, "v1beta1")
	guard := startGuard(t)
	createBackend(t, newBackend("cluster", adopting(v1alpha1.AdoptionAlways), existing))
	backend := waitReady(t, "cluster")
	if got := strings.Join(discovered(t), " "); got != "v1beta1" || backend.Status.RegisteredVersions != "v1beta1" {
		t.Errorf("discovery lists %q, the status %q", got, backend.Status.RegisteredVersions)
	}
	changeBackend(t, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Existing = nil })
	waitReady(t, "cluster")
	if service := leads(t, "v1beta1", ourName); service.UID != stock.UID || service.Spec.InsecureSkipTLSVerify {
		t.Errorf("led to our pods: %+v", service)
	}
	leads(t, "v1", ourName)
	changeBackend(t, "cluster", existing)
	waitReady(t, "cluster")
	if service := leads(t, "v1beta1", theirName); service.UID != stock.UID || len(service.Spec.CABundle) > 0 {
		t.Errorf("led back: %+v", service)
	}
	if got := strings.Join(discovered(t), " "); got != "v1beta1" {
		t.Errorf("discovery lists %q", got)
	}
	var deployments appsv1.DeploymentList
	if err := suite.admin.List(t.Context(), &deployments, owned()); err != nil || len(deployments.Items) > 0 {
		t.Errorf("%d Deployments of ours, %v", len(deployments.Items), err)
	}
	deleteBackend(t, "cluster")
	load.stop(t)
	guard.stop(t)
	back, err := getAPIService(t.Context(), "v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stock.Spec, back.Spec); diff != "" {
		t.Errorf("spec (-stock +handed back):\n%s", diff)
	}
}

// Real rivals: one applies server-side, the other replaces the object.
func TestContested(t *testing.T) {
	rivals := map[string]func(context.Context) error{
		"server-side apply": func(ctx context.Context) error {
			stock := stockAPIService()
			return suite.admin.Apply(ctx, apiregistrationv1ac.APIService(stock.Name).WithLabels(stock.Labels).
				WithSpec(apiregistrationv1ac.APIServiceSpec().WithGroup("metrics.k8s.io").WithVersion("v1beta1").
					WithGroupPriorityMinimum(100).WithVersionPriority(100).
					WithService(apiregistrationv1ac.ServiceReference().WithNamespace("kube-system").WithName("metrics-server").WithPort(443))),
				client.FieldOwner("gitops-controller"), client.ForceOwnership)
		},
		"update": func(ctx context.Context) error {
			live, err := getAPIService(ctx, "v1beta1")
			if err != nil {
				return err
			}
			stock := stockAPIService()
			stock.UID, stock.ResourceVersion = live.UID, live.ResourceVersion
			return suite.admin.Update(ctx, stock, client.FieldOwner("gitops-controller"))
		},
	}
	for name, apply := range rivals {
		t.Run(name, func(t *testing.T) {
			installMetricsServer(t)
			createBackend(t, newBackend("cluster", adopting(v1alpha1.AdoptionAlways)))
			waitReady(t, "cluster")
			fought := 0
			eventually(t, patience, "the operator gives in", func(ctx context.Context) error {
				live, err := getAPIService(ctx, "v1beta1")
				if err != nil {
					return err
				}
				if live.Spec.Service.Name != "metrics-server" {
					fought++
					if err := apply(ctx); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
						return err
					}
				}
				if c := condition(getBackend(t, "cluster"), v1alpha1.ConditionStalled); c.Reason != v1alpha1.ReasonContested {
					return fmt.Errorf("after %d rounds: %s", fought, show(getBackend(t, "cluster")))
				}
				return nil
			})
			c := condition(getBackend(t, "cluster"), v1alpha1.ConditionStalled)
			if !strings.Contains(c.Message, `field manager "gitops-controller" keeps changing it back`) {
				t.Errorf("Stalled is %+v", c)
			}
			t.Logf("gave in after %d rounds", fought)
			// It stays so.
			leads(t, "v1beta1", theirName)
			from := len(auditEvents(t))
			select {
			case <-time.After(3 * time.Second):
			case <-t.Context().Done():
			}
			leads(t, "v1beta1", theirName)
			for _, e := range auditEvents(t)[from:] {
				if isWrite(e.Verb) && e.ObjectRef.Resource == "apiservices" && e.ObjectRef.Name == "v1beta1.metrics.k8s.io" {
					t.Errorf("written again: %s", e.Verb)
				}
			}
			// The rival has gone, and so has its APIService.
			if err := suite.admin.Delete(t.Context(), stockAPIService()); err != nil {
				t.Fatal(err)
			}
			waitReady(t, "cluster")
			leads(t, "v1beta1", ourName)
		})
	}
}

// The younger backend waits with everything but its registration, and takes over
// in place: no request fails.
func TestTwoBackends(t *testing.T) {
	createBackend(t, newBackend("elder"))
	waitReady(t, "elder")
	createBackend(t, newBackend("cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Namespace = otherNamespace }))
	waiting := waitCondition(t, "cluster", v1alpha1.ConditionServingReady, metav1.ConditionTrue, "")
	waitCondition(t, "cluster", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonConflict)
	if c := condition(waiting, v1alpha1.ConditionReady); !strings.Contains(c.Message, `MetricsBackend "elder" is older and claims v1.metrics.k8s.io`) {
		t.Errorf("Ready is %+v", c)
	}
	service := leads(t, "v1", systemNamespace+"/metrics-serving-elder")
	load := startRequests(t, "v1", "v1beta1")
	deleteBackend(t, "elder")
	waitReady(t, "cluster")
	load.stop(t)
	if heir := leads(t, "v1", otherNamespace+"/metrics-serving-cluster"); heir.UID != service.UID || heir.Labels[v1alpha1.LabelBackend] != "cluster" {
		t.Errorf("v1 was made anew, or is whose: %+v", heir.ObjectMeta)
	}
}
