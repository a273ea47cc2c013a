// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// step lets every other component of the cluster do one thing.
func (fc *fakeCluster) step() {
	ctx := context.Background()
	fc.stepDiscovery()
	for _, service := range fc.apiServices() {
		if len(service.Status.Conditions) == 0 {
			service.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
				Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: "Passed",
			}}
			fc.updateStatus(&service)
		}
	}
	var deployments appsv1.DeploymentList
	fc.list(&deployments)
	for _, p := range fc.pods() {
		if !slices.ContainsFunc(deployments.Items, func(d appsv1.Deployment) bool { return isOf(&p, &d) }) {
			fc.delete(&p)
		}
	}
	for i := range deployments.Items {
		fc.roll(ctx, &deployments.Items[i])
	}
	for _, p := range fc.pods() {
		if p.DeletionTimestamp == nil {
			continue
		}
		if fc.stepsTerminating[p.Name]++; fc.stepsTerminating[p.Name] > fc.terminationSteps {
			p.Finalizers = nil
			fc.update(&p)
		}
	}
	fc.reloadCertificates()
	fc.clock.Step(5 * time.Second)
	fc.checkInvariant("after a step of the cluster")
}

func (fc *fakeCluster) stepDiscovery() {
	for _, v := range fc.views {
		v.follow(fc.allAPIServices())
	}
	for _, gv := range testVersions {
		if fc.other.pointsTo[gv] == metricsServer && fc.pointsToNow(gv) == ourService {
			fc.moved[gv] = fc.clock.Now()
		}
		fc.followAPIService(gv)
		fc.recheck(gv)
		if fc.discovered[gv] == fc.isRegistered(gv) {
			fc.lagging[gv] = 0
			continue
		}
		if fc.lagging[gv]++; fc.lagging[gv] > fc.discoveryDelay {
			fc.discovered[gv], fc.lagging[gv] = fc.isRegistered(gv), 0
		}
	}
}

// recheck has the aggregator check an APIService after it moved.
func (fc *fakeCluster) recheck(gv schema.GroupVersion) {
	fc.t.Helper()
	at, moved := fc.moved[gv]
	if !moved || fc.blocked || fc.clock.Now().Sub(at) < fc.recheckDelay || fc.pointsToNow(gv) != ourService {
		return
	}
	delete(fc.moved, gv)
	fc.setAvailable(fc.apiService(gv), apiregistrationv1.ConditionTrue, "Passed")
}

func isOf(p *corev1.Pod, d *appsv1.Deployment) bool {
	return p.Namespace == d.Namespace && p.Labels[v1alpha1.LabelBackend] == d.Labels[v1alpha1.LabelBackend]
}

// roll is a rolling update with maxSurge 1 and maxUnavailable 0, one pod a step.
func (fc *fakeCluster) roll(ctx context.Context, d *appsv1.Deployment) {
	image := d.Spec.Template.Spec.Containers[0].Image
	hash := fmt.Sprintf("%x-%d", image, d.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort)
	fc.revision(ctx, d, hash)
	want := int(*d.Spec.Replicas)
	var current, former []corev1.Pod
	for _, p := range fc.pods() {
		if p.DeletionTimestamp != nil || !isOf(&p, d) {
			continue // no Deployment counts it any more
		}
		if p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash {
			current = append(current, p)
		} else {
			former = append(former, p)
		}
	}
	waiting := slices.IndexFunc(current, func(p corev1.Pod) bool { return !isReady(&p) })
	switch {
	case waiting >= 0 && fc.mayBeReady(&current[waiting]):
		current[waiting].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		fc.updateStatus(&current[waiting])
	case waiting >= 0:
	case len(current)+len(former) > want && len(former) > 0:
		fc.delete(&former[0])
		former = former[1:]
	case len(current) < want:
		p := fc.newPod(d, hash)
		fc.create(&p)
		current = append(current, p)
	case len(current) > want:
		fc.delete(&current[0])
		current = current[1:]
	}
	ready := 0
	for _, p := range append(slices.Clone(current), former...) {
		if isReady(&p) {
			ready++
		}
	}
	before := d.Status
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation,
		Replicas:           int32(len(current) + len(former)), UpdatedReplicas: int32(len(current)),
		ReadyReplicas: int32(ready), AvailableReplicas: int32(ready),
	}
	// A real write that changes nothing is none, unlike a fake client's.
	if !equality.Semantic.DeepEqual(before, d.Status) {
		fc.updateStatus(d)
	}
}

func (fc *fakeCluster) revision(ctx context.Context, d *appsv1.Deployment, hash string) {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name + "-" + hash}}
	set.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash}
	for k, v := range d.Spec.Template.Labels {
		set.Labels[k] = v
	}
	set.Annotations = map[string]string{revisionAnnotation: hash}
	set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	if err := fc.raw.Create(ctx, set); err != nil && !apierrors.IsAlreadyExists(err) {
		fc.t.Fatal(err)
	}
	if d.Annotations[revisionAnnotation] != hash {
		d.Annotations = map[string]string{revisionAnnotation: hash}
		fc.update(d)
	}
}

func (fc *fakeCluster) newPod(d *appsv1.Deployment, hash string) corev1.Pod {
	fc.podNumber++
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: d.Namespace, Name: fmt.Sprintf("pod-%03d", fc.podNumber), Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash},
	}}
	for k, v := range d.Spec.Template.Labels {
		p.Labels[k] = v
	}
	fc.gatedUntil[p.Name] = fc.clock.Now().Add(gateDelay)
	if fc.terminationSteps > 0 {
		p.Finalizers = []string{"kubelet.example.com/answers"}
	}
	p.Spec = d.Spec.Template.Spec
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.%d.%d", fc.podNumber/250, fc.podNumber%250)}
	return p
}

// gateDelay is how long a pod's readiness gate stays closed after the cause is gone.
const gateDelay = 10 * time.Second

// mayBeReady is a serving pod's own gate: it serves all versions registered with our
// label, unless no ready peer does either, and has for gateDelay.
func (fc *fakeCluster) mayBeReady(p *corev1.Pod) bool {
	if fc.unready != nil && fc.unready(p) {
		return false
	}
	if fc.withoutGate {
		return true
	}
	for _, gv := range testVersions {
		labelled := slices.ContainsFunc(fc.apiServices(), func(s apiregistrationv1.APIService) bool {
			return s.Name == apiServiceName(gv) && s.Labels[v1alpha1.LabelBackend] == p.Labels[v1alpha1.LabelBackend]
		})
		peer := slices.ContainsFunc(fc.pods(), func(other corev1.Pod) bool { return isPeer(p, &other) && serves(&other, gv) })
		if labelled && !serves(p, gv) && peer {
			fc.gatedUntil[p.Name] = fc.clock.Now().Add(gateDelay)
			return false
		}
	}
	alone := !slices.ContainsFunc(fc.pods(), func(other corev1.Pod) bool { return isPeer(p, &other) })
	return alone || !fc.clock.Now().Before(fc.gatedUntil[p.Name])
}

// isBehind reports whether a pod is one of those of the Service.
func isBehind(p *corev1.Pod, to *apiregistrationv1.ServiceReference) bool {
	return p.Namespace == to.Namespace && to.Name == "metrics-serving-"+p.Labels[v1alpha1.LabelBackend]
}

// isPeer reports whether the other pod is ready, and of the same backend.
func isPeer(p, other *corev1.Pod) bool {
	return isReady(other) && other.Labels[v1alpha1.LabelBackend] == p.Labels[v1alpha1.LabelBackend]
}
