// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	revisionKey = "deployment.kubernetes.io/revision"
	hashKey     = appsv1.DefaultDeploymentUniqueLabelKey
)

// workload stands in for the Deployment controller, the scheduler, the kubelet,
// the EndpointSlice controller and the garbage collector, as far as serving needs
// them. A pod becomes ready by the serving component's own rule: it serves what
// is registered, unless no ready peer does either.
type workload struct {
	client client.WithWatch
	pods   *podNetwork
	// changed has an element when an object has changed since the last look.
	changed chan struct{}
}

func newWorkload(c client.WithWatch, pods *podNetwork) *workload {
	return &workload{client: c, pods: pods, changed: make(chan struct{}, 1)}
}

// run looks soon after an object has changed, and now and then, as the test's switches may have.
func (w *workload) run(ctx context.Context) {
	for _, list := range []client.ObjectList{
		&appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &corev1.PodList{}, &discoveryv1.EndpointSliceList{},
		&apiregistrationv1.APIServiceList{},
	} {
		go w.watch(ctx, list)
	}
	ticker := time.NewTicker(30 * time.Millisecond)
	defer ticker.Stop()
	for looked := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		select {
		case <-w.changed:
		default:
			if time.Since(looked) < 250*time.Millisecond {
				continue
			}
		}
		looked = time.Now()
		err := w.step(ctx)
		if err == nil {
			continue
		}
		w.change()
		switch {
		case ctx.Err() != nil, apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err),
			apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		default:
			fmt.Fprintln(os.Stderr, "simulated workload:", err)
		}
	}
}

// watch notes each change of the objects of a kind, also across the ends of a watch.
func (w *workload) watch(ctx context.Context, list client.ObjectList) {
	for ctx.Err() == nil {
		if watcher, err := w.client.Watch(ctx, list); err == nil {
			for range watcher.ResultChan() {
				w.change()
			}
			watcher.Stop()
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (w *workload) change() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func owned() client.ListOption { return client.HasLabels{v1alpha1.LabelBackend} }

func (w *workload) step(ctx context.Context) error {
	var deployments appsv1.DeploymentList
	if err := w.client.List(ctx, &deployments, owned()); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := w.client.List(ctx, &pods, owned()); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		alive := slices.ContainsFunc(deployments.Items, func(d appsv1.Deployment) bool {
			return d.Namespace == pod.Namespace && d.Labels[v1alpha1.LabelBackend] == pod.Labels[v1alpha1.LabelBackend]
		})
		if !alive || pod.DeletionTimestamp != nil {
			if err := w.kill(ctx, pod); err != nil {
				return err
			}
		}
	}
	for i := range deployments.Items {
		if err := w.reconcile(ctx, &deployments.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *workload) kill(ctx context.Context, pod *corev1.Pod) error {
	w.pods.remove(pod.Status.PodIP)
	return client.IgnoreNotFound(w.client.Delete(ctx, pod, client.GracePeriodSeconds(0)))
}

func (w *workload) reconcile(ctx context.Context, d *appsv1.Deployment) error {
	hash, err := w.revision(ctx, d)
	if err != nil {
		return err
	}
	var list corev1.PodList
	selector := client.MatchingLabels(d.Spec.Selector.MatchLabels)
	if err := w.client.List(ctx, &list, client.InNamespace(d.Namespace), selector); err != nil {
		return err
	}
	refusal := ""
	if err := w.roll(ctx, d, list.Items, hash); err != nil {
		refused := podRefusedError{}
		if !errors.As(err, &refused) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return err
		}
		refusal = refused.Error()
	}
	if err := w.client.List(ctx, &list, client.InNamespace(d.Namespace), selector); err != nil {
		return err
	}
	for i := range list.Items {
		if err := w.start(ctx, d, &list.Items[i], list.Items); err != nil {
			return err
		}
	}
	if err := w.endpoints(ctx, d, list.Items); err != nil {
		return err
	}
	return w.status(ctx, d, list.Items, hash, refusal)
}

// revision makes the ReplicaSet of the current template and numbers it.
func (w *workload) revision(ctx context.Context, d *appsv1.Deployment) (string, error) {
	body, err := json.Marshal(d.Spec.Template)
	if err != nil {
		return "", err
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(body))[:8]
	var sets appsv1.ReplicaSetList
	if err := w.client.List(ctx, &sets, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
		return "", err
	}
	newest, mine := 0, (*appsv1.ReplicaSet)(nil)
	for i := range sets.Items {
		if !metav1.IsControlledBy(&sets.Items[i], d) {
			continue
		}
		number, _ := strconv.Atoi(sets.Items[i].Annotations[revisionKey])
		newest = max(newest, number)
		if sets.Items[i].Labels[hashKey] == hash {
			mine = &sets.Items[i]
		}
	}
	number := strconv.Itoa(newest + 1)
	if mine == nil {
		template := *d.Spec.Template.DeepCopy()
		template.Labels[hashKey] = hash
		set := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: d.Namespace, Name: d.Name + "-" + hash, Labels: template.Labels,
				Annotations:     map[string]string{revisionKey: number},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
			},
			Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
		}
		if err := w.client.Create(ctx, set); err != nil {
			return "", err
		}
	} else if have := mine.Annotations[revisionKey]; have == strconv.Itoa(newest) {
		number = have
	} else if err := w.annotate(ctx, mine, number); err != nil {
		return "", err
	}
	return hash, w.annotate(ctx, d, number)
}

func (w *workload) annotate(ctx context.Context, object client.Object, number string) error {
	if object.GetAnnotations()[revisionKey] == number {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, revisionKey, number)
	return w.client.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

// roll makes and removes pods as a rolling update does.
func (w *workload) roll(ctx context.Context, d *appsv1.Deployment, pods []corev1.Pod, hash string) error {
	want := int(ptr.Deref(d.Spec.Replicas, 1))
	surge, unavailable := d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue(), d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue()
	var current, former []*corev1.Pod
	ready := 0
	for i := range pods {
		pod := &pods[i]
		if podReady(pod) {
			ready++
		}
		if pod.Labels[hashKey] == hash {
			current = append(current, pod)
		} else {
			former = append(former, pod)
		}
	}
	for len(current) < want && len(current)+len(former) < want+surge {
		pod, err := w.make(ctx, d, hash)
		if err != nil {
			return err
		}
		current = append(current, pod)
	}
	for _, pod := range former {
		if podReady(pod) {
			if ready-1 < want-unavailable {
				continue
			}
			ready--
		}
		if err := w.kill(ctx, pod); err != nil {
			return err
		}
	}
	for len(current) > want {
		if err := w.kill(ctx, current[0]); err != nil {
			return err
		}
		current = current[1:]
	}
	return nil
}

func (w *workload) make(ctx context.Context, d *appsv1.Deployment, hash string) (*corev1.Pod, error) {
	template := d.Spec.Template.DeepCopy()
	template.Labels[hashKey] = hash
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, GenerateName: d.Name + "-" + hash + "-",
			Labels: template.Labels, Annotations: template.Annotations,
		},
		Spec: template.Spec,
	}
	if err := w.client.Create(ctx, pod); err != nil {
		return nil, podRefusedError{err}
	}
	return pod, nil
}

// podRefusedError is what a Deployment reports in its condition ReplicaFailure.
type podRefusedError struct{ error }

// Unwrap is for the causes of a refusal.
func (e podRefusedError) Unwrap() error { return e.error }

// start brings one pod up, as far as its image lets it.
func (w *workload) start(ctx context.Context, d *appsv1.Deployment, pod *corev1.Pod, peers []corev1.Pod) error {
	if podReady(pod) {
		return nil
	}
	image := pod.Spec.Containers[0].Image
	before := pod.DeepCopy()
	status := corev1.ContainerStatus{Name: pod.Spec.Containers[0].Name, Image: image}
	if image == imageMissing {
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}
	} else {
		if pod.Status.PodIP == "" {
			mounted := &mountedCertificate{key: client.ObjectKey{Namespace: pod.Namespace, Name: secretOf(pod)}, network: w.pods}
			pod.Status.PodIP = w.pods.add(d.Labels[v1alpha1.LabelBackend], versionsOf(image), mounted)
			pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
			pod.Status.Phase = corev1.PodRunning
		}
		status.State.Running = &corev1.ContainerStateRunning{}
		status.Started = ptr.To(true)
		ready, err := w.mayBeReady(ctx, pod, peers)
		if err != nil {
			return err
		}
		if ready {
			status.Ready = true
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
	if equality.Semantic.DeepEqual(before, pod) {
		return nil
	}
	return w.client.Status().Patch(ctx, pod, client.MergeFrom(before))
}

func secretOf(pod *corev1.Pod) string {
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret != nil {
			return volume.Secret.SecretName
		}
	}
	return ""
}

// mayBeReady is the first gate of a serving pod's readiness.
func (w *workload) mayBeReady(ctx context.Context, pod *corev1.Pod, peers []corev1.Pod) (bool, error) {
	var registered apiregistrationv1.APIServiceList
	if err := w.client.List(ctx, &registered, client.MatchingLabels{v1alpha1.LabelBackend: pod.Labels[v1alpha1.LabelBackend]}); err != nil {
		return false, err
	}
	for _, service := range registered.Items {
		serves := func(p corev1.Pod) bool {
			return slices.Contains(versionsOf(p.Spec.Containers[0].Image), service.Spec.Version)
		}
		peerServes := slices.ContainsFunc(peers, func(p corev1.Pod) bool { return podReady(&p) && serves(p) })
		if !serves(*pod) && peerServes {
			return false, nil
		}
	}
	return true, nil
}

func (w *workload) endpoints(ctx context.Context, d *appsv1.Deployment, pods []corev1.Pod) error {
	slice := &discoveryv1.EndpointSlice{}
	key := client.ObjectKey{Namespace: d.Namespace, Name: d.Name + "-sim"}
	err := w.client.Get(ctx, key, slice)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	missing := apierrors.IsNotFound(err)
	before := slice.DeepCopy()
	slice.Namespace, slice.Name = key.Namespace, key.Name
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: d.Name}
	slice.AddressType = discoveryv1.AddressTypeIPv4
	slice.Ports = []discoveryv1.EndpointPort{{
		Name: ptr.To("https"), Port: ptr.To(pods0Port(d)), Protocol: ptr.To(corev1.ProtocolTCP),
	}}
	slice.Endpoints = nil
	for i := range pods {
		if podReady(&pods[i]) && pods[i].DeletionTimestamp == nil {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{pods[i].Status.PodIP}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
				// kube-apiserver's proxy requires it.
				TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pods[i].Namespace, Name: pods[i].Name, UID: pods[i].UID},
			})
		}
	}
	if !missing && equality.Semantic.DeepEqual(before, slice) {
		return nil
	}
	// First, since it is not looked at again once the slice is written.
	if err := w.client.Apply(ctx, endpointsOf(slice), client.FieldOwner("workload"), client.ForceOwnership); err != nil {
		return err
	}
	if missing {
		return w.client.Create(ctx, slice)
	}
	return w.client.Patch(ctx, slice, client.MergeFrom(before))
}

// endpointsOf returns the Endpoints of the same pods, by which kube-apiserver routes before Kubernetes 1.34.
//
//nolint:staticcheck // those versions are tested, too
func endpointsOf(slice *discoveryv1.EndpointSlice) *corev1apply.EndpointsApplyConfiguration {
	subset := corev1apply.EndpointSubset()
	for _, port := range slice.Ports {
		subset.WithPorts(corev1apply.EndpointPort().WithName(*port.Name).WithPort(*port.Port).WithProtocol(*port.Protocol))
	}
	for _, endpoint := range slice.Endpoints {
		address := corev1apply.EndpointAddress().WithIP(endpoint.Addresses[0])
		if pod := endpoint.TargetRef; pod != nil {
			address.WithTargetRef(corev1apply.ObjectReference().WithKind(pod.Kind).WithNamespace(pod.Namespace).WithName(pod.Name).WithUID(pod.UID))
		}
		subset.WithAddresses(address)
	}
	endpoints := corev1apply.Endpoints(slice.Labels[discoveryv1.LabelServiceName], slice.Namespace)
	if len(slice.Endpoints) > 0 {
		endpoints.WithSubsets(subset)
	}
	return endpoints
}

func pods0Port(d *appsv1.Deployment) int32 {
	return d.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort
}

func (w *workload) status(ctx context.Context, d *appsv1.Deployment, pods []corev1.Pod, hash, refusal string) error {
	before := d.DeepCopy()
	status := appsv1.DeploymentStatus{ObservedGeneration: d.Generation}
	switch {
	case refusal != "" && len(d.Status.Conditions) > 0:
		status.Conditions = d.Status.Conditions // the first refusal's, though messages have names of pods
	case refusal != "":
		status.Conditions = []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: refusal,
		}}
	}
	for i := range pods {
		if pods[i].DeletionTimestamp != nil {
			continue
		}
		status.Replicas++
		if pods[i].Labels[hashKey] == hash {
			status.UpdatedReplicas++
		}
		if podReady(&pods[i]) {
			status.ReadyReplicas++
			status.AvailableReplicas++
		}
	}
	d.Status = status
	if equality.Semantic.DeepEqual(before, d) {
		return nil
	}
	return w.client.Status().Patch(ctx, d, client.MergeFrom(before))
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
