// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package declaredmetric

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Trim is a cache.TransformFunc that keeps the fields of a CustomMetric or ExternalMetric
// that the Controller reads, and whether it is large. Teams choose the size of the others, such
// as annotations.
func Trim(obj any) (any, error) {
	switch m := obj.(type) {
	case *v1alpha1.CustomMetric:
		m.ObjectMeta = trimMeta(&m.ObjectMeta)
		m.DropSpec()
	case *v1alpha1.ExternalMetric:
		m.ObjectMeta = trimMeta(&m.ObjectMeta)
		m.DropSpec()
	}
	return obj, nil
}

func trimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, ResourceVersion: m.ResourceVersion,
	}
}
