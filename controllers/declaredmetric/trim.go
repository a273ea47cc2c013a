// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package declaredmetric

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Trim is a cache.TransformFunc that keeps the fields of a CustomMetric or ExternalMetric
// that the Controller reads. Teams choose the size of the others, such as annotations.
func Trim(obj any) (any, error) {
	switch m := obj.(type) {
	case *v1alpha1.CustomMetric:
		return &v1alpha1.CustomMetric{TypeMeta: m.TypeMeta, ObjectMeta: trimMeta(&m.ObjectMeta), Status: m.Status}, nil
	case *v1alpha1.ExternalMetric:
		return &v1alpha1.ExternalMetric{TypeMeta: m.TypeMeta, ObjectMeta: trimMeta(&m.ObjectMeta), Status: m.Status}, nil
	}
	return obj, nil
}

func trimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, ResourceVersion: m.ResourceVersion,
	}
}
