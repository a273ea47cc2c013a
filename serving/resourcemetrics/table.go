// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/metrics/pkg/apis/metrics"
)

// ConvertToTable renders what `kubectl get` prints. Each row's object is light
// where the caller is going to keep no more of it than its metadata. Objects of
// watch events, and bookmarks, come as API objects.
func (s *storage) ConvertToTable(_ context.Context, obj, tableOptions runtime.Object) (*metav1.Table, error) {
	options, _ := tableOptions.(*metav1.TableOptions)
	if options == nil {
		options = &metav1.TableOptions{}
	}
	table := &metav1.Table{}
	if !options.NoHeaders {
		table.ColumnDefinitions = columns
	}
	switch obj := obj.(type) {
	case *object:
		table.ResourceVersion = obj.point.Point.ResourceVersion()
		table.Rows = []metav1.TableRow{row(obj, options.IncludeObject)}
	case *metrics.NodeMetrics:
		table.ResourceVersion = obj.ResourceVersion
		table.Rows = []metav1.TableRow{builtRow(obj.Name, obj.Window, obj, obj.Usage)}
	case *metrics.PodMetrics:
		usages := make([]corev1.ResourceList, len(obj.Containers))
		for i := range obj.Containers {
			usages[i] = obj.Containers[i].Usage
		}
		table.ResourceVersion = obj.ResourceVersion
		table.Rows = []metav1.TableRow{builtRow(obj.Name, obj.Window, obj, usages...)}
	case *list:
		table.ListMeta = obj.meta()
		table.Rows = make([]metav1.TableRow, len(obj.Items))
		for i := range obj.Items {
			table.Rows[i] = row(&obj.Items[i], options.IncludeObject)
		}
	default:
		return nil, fmt.Errorf("converting to a Table: %T is neither %s nor a list of them", obj, s.kind.name)
	}
	return table, nil
}

// columns are those that metrics-server prints.
var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "Name of the node or pod."},
	{Name: "cpu", Type: "string", Format: "quantity", Description: "CPU used, in cores, averaged over the window; the sum of a pod's containers."},
	{Name: "memory", Type: "string", Format: "quantity", Description: "Working set in bytes; the sum of a pod's containers."},
	{Name: "Window", Type: "string", Format: "duration", Description: "Time over which CPU was averaged."},
}

func row(o *object, include metav1.IncludeObjectPolicy) metav1.TableRow {
	sum := total(o.point.Point.Usages)
	cpu, memory := cpuQuantity(sum.CPU), bytesQuantity(sum.Memory)
	r := metav1.TableRow{
		Cells:  []any{o.point.Name, cpu.String(), memory.String(), o.point.Point.Window.String()},
		Object: runtime.RawExtension{Object: o},
	}
	if include == metav1.IncludeObject {
		r.Object.Object = o.GetObject()
	}
	return r
}

// builtRow is the row of an API object.
func builtRow(name string, window metav1.Duration, obj runtime.Object, usages ...corev1.ResourceList) metav1.TableRow {
	cpu, memory := resource.Quantity{Format: resource.DecimalSI}, resource.Quantity{Format: resource.BinarySI}
	for _, usage := range usages {
		cpu.Add(usage[corev1.ResourceCPU])
		memory.Add(usage[corev1.ResourceMemory])
	}
	return metav1.TableRow{
		Cells:  []any{name, cpu.String(), memory.String(), window.Duration.String()},
		Object: runtime.RawExtension{Object: obj},
	}
}
