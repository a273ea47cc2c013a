// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

// Resources returns those of a started fleet, and the ConfigMaps, all as if an API server had
// created them.
func Resources(f *fleet.Fleet, configMaps ...*corev1.ConfigMap) (map[string]*Resource, error) {
	var b builder
	var nodes, pods, namespaces, settings []Object
	for _, n := range f.Nodes() {
		nodes = append(nodes, b.object("node", f.NodeObject(n), nil, func() Whole { return f.NodeObject(n) }))
		for _, p := range n.Pods() {
			pod := f.PodObject(p, n)
			selectable := fields.Set{"spec.nodeName": n.Name, "status.phase": string(corev1.PodRunning)}
			pods = append(pods, b.object(podStructure(pod), pod, selectable, func() Whole { return f.PodObject(p, n) }))
		}
	}
	for _, name := range append([]string{metav1.NamespaceDefault, metav1.NamespaceSystem}, f.Namespaces()...) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}
		namespaces = append(namespaces, b.object("namespace", namespace, nil, func() Whole { return namespace.DeepCopy() }))
	}
	for _, one := range configMaps {
		settings = append(settings, b.object("ConfigMap "+one.Namespace+"/"+one.Name, one, nil, func() Whole { return one.DeepCopy() }))
	}
	if b.err != nil {
		return nil, b.err
	}
	all := map[string]*Resource{
		"nodes":      {Kind: "Node", Empty: func() Whole { return &corev1.Node{} }, List: func() runtime.Object { return &corev1.NodeList{} }},
		"pods":       {Kind: "Pod", Namespaced: true, Empty: func() Whole { return &corev1.Pod{} }, List: func() runtime.Object { return &corev1.PodList{} }},
		"namespaces": {Kind: "Namespace", Empty: func() Whole { return &corev1.Namespace{} }, List: func() runtime.Object { return &corev1.NamespaceList{} }},
		"configmaps": {Kind: "ConfigMap", Namespaced: true, Empty: func() Whole { return &corev1.ConfigMap{} }, List: func() runtime.Object { return &corev1.ConfigMapList{} }},
	}
	all["nodes"].Set(nodes)
	all["pods"].Set(pods)
	all["namespaces"].Set(namespaces)
	all["configmaps"].Set(settings)
	return all, nil
}

// builder adds the metadata that an API server adds, until the first error.
type builder struct {
	manager fieldManager
	err     error
}

// created is the time of creation of all objects.
var created = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// podStructure names the structure of a pod of the fleet.
func podStructure(p *corev1.Pod) string {
	names := slices.Sorted(maps.Keys(p.Labels))
	for i := range p.Spec.Containers {
		names = append(names, p.Spec.Containers[i].Name)
	}
	return "pod " + strings.Join(names, " ")
}

func (b *builder) object(structure string, o Whole, selectable fields.Set, whole func() Whole) Object {
	managed, err := b.manager.entries(structure, o, created)
	if err != nil && b.err == nil {
		b.err = err
	}
	return Object{
		Meta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: o.GetName(), Labels: o.GetLabels(), Annotations: o.GetAnnotations(),
			UID: uid(o.GetNamespace() + "/" + o.GetName()), CreationTimestamp: metav1.NewTime(created), ManagedFields: managed,
		},
		Fields: selectable, Whole: whole,
	}
}

// uid returns a UID that follows from a name.
func uid(name string) types.UID {
	h := sha256.Sum256([]byte(name))
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}
