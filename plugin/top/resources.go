// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	runtimeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// resources are the requests and limits of a pod or a container; 0 is none.
type resources struct{ requests, limits usage }

// resourcesOf returns those of each container, or of the pod: its own or else the sums of its containers and sidecars, without a
// limit if one of them has none.
func resourcesOf(pod *corev1.Pod, containers bool) map[id]resources {
	running := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			running = append(running, c)
		}
	}
	key, found := pod.Namespace+"/"+pod.Name, map[id]resources{}
	var sum resources
	var unlimitedCPU, unlimitedMemory bool
	for _, c := range running {
		r := resources{usageOf(c.Resources.Requests), usageOf(c.Resources.Limits)}
		found[id{object: key, namespace: pod.Namespace, pod: pod.Name, name: c.Name}] = r
		sum.requests = sum.requests.plus(r.requests)
		sum.limits = sum.limits.plus(r.limits)
		unlimitedCPU, unlimitedMemory = unlimitedCPU || r.limits.cpu == 0, unlimitedMemory || r.limits.memory == 0
	}
	if containers {
		return found
	}
	if unlimitedCPU {
		sum.limits.cpu = 0
	}
	if unlimitedMemory {
		sum.limits.memory = 0
	}
	if of := pod.Spec.Resources; of != nil { // those of the pod itself come before its containers'
		sum = resources{usageOf(of.Requests).or(sum.requests), usageOf(of.Limits).or(sum.limits)}
	}
	return map[id]resources{{object: key, namespace: pod.Namespace, name: pod.Name}: sum}
}

// readResources reads those of all rows.
func (o *options) readResources(ctx context.Context, cluster *connection.Cluster) (map[id]resources, error) {
	all := map[id]resources{}
	var page corev1.PodList
	err := cluster.Each(ctx, &page, func() {
		for i := range page.Items {
			for row, r := range resourcesOf(&page.Items[i], o.containers) {
				all[row] = r
			}
		}
	}, &runtimeclient.ListOptions{Namespace: o.namespace, Raw: &metav1.ListOptions{LabelSelector: o.selector, FieldSelector: o.fields}})
	if err != nil {
		return nil, fmt.Errorf("list pods, for their requests and limits: %w", err)
	}
	return all, nil
}

// usageColumns returns the column of a usage and, if they are shown, those of requests and limits.
func (v *view) usageColumns(c *column, of func(usage) int64, text func(int64) string) []*column {
	if v.resources == nil {
		return []*column{c}
	}
	name, _, _ := strings.Cut(c.head, "(")
	shown := func(head string, part func(resources) usage) *column {
		return &column{head: name + head, value: func(r *row) string {
			if n := of(part(v.resources[r.id])); n > 0 {
				return text(n)
			}
			return "-"
		}}
	}
	return []*column{c, shown("(requests)", func(r resources) usage { return r.requests }), shown("(limits)", func(r resources) usage { return r.limits })}
}

// object is a row of -o json and yaml.
type object struct {
	Namespace string              `json:"namespace,omitempty"`
	Pod       string              `json:"pod,omitempty"`
	Name      string              `json:"name"`
	Timestamp *metav1.Time        `json:"timestamp,omitempty"`
	Usage     corev1.ResourceList `json:"usage,omitempty"`
	Requests  corev1.ResourceList `json:"requests,omitempty"`
	Limits    corev1.ResourceList `json:"limits,omitempty"`
	// Allocatable is of nodes.
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
}

// printObjects writes the rows as JSON or YAML, and the nodes without metrics.
func (v *view) printObjects(out io.Writer, format output.Format) error {
	list := struct {
		Items []object `json:"items"`
	}{Items: []object{}}
	for _, r := range v.table.sorted(v.by) {
		list.Items = append(list.Items, object{
			Namespace: r.id.namespace, Pod: r.id.pod, Name: r.id.name, Timestamp: &metav1.Time{Time: r.at}, Usage: r.quantities(),
			Requests: v.resources[r.id].requests.nonZero(), Limits: v.resources[r.id].limits.nonZero(), Allocatable: v.available[r.id.name].nonZero(),
		})
	}
	for _, name := range v.table.missing(v.available) {
		list.Items = append(list.Items, object{Name: name, Allocatable: v.available[name].nonZero()})
	}
	return format.Print(out, list)
}

func (u usage) quantities() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(u.cpu, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(u.memory, resource.BinarySI),
	}
}

// nonZero returns the quantities that are not 0, which means none.
func (u usage) nonZero() corev1.ResourceList {
	list := u.quantities()
	maps.DeleteFunc(list, func(_ corev1.ResourceName, q resource.Quantity) bool { return q.IsZero() })
	return list
}
