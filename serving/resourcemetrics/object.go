// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// object is a NodeMetrics or PodMetrics on its way to a client: a data point
// that an encoder can write without building the API object first. It is
// immutable, and so may be shared.
type object struct {
	kind  *kind
	point *samplestore.Object
}

var (
	_ runtime.CacheableObject   = &object{}
	_ metav1.ObjectMetaAccessor = &object{}
)

// GetObjectKind is empty, as it is for objects of the internal version.
func (o *object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject copies the wrapper: what it wraps never changes.
func (o *object) DeepCopyObject() runtime.Object {
	c := *o
	return &c
}

// GetObjectMeta serves meta.Accessor, on the way to Table and PartialObjectMetadata.
func (o *object) GetObjectMeta() metav1.Object {
	meta := objectMeta(o.point)
	return &meta
}

// GetObject builds the API object, in the internal version.
func (o *object) GetObject() runtime.Object {
	return o.kind.build(o.point)
}

// list is a NodeMetricsList or PodMetricsList on its way to a client. It looks
// like a list to package meta, which goes by the field Items.
type list struct {
	metav1.ListInterface
	Items []object

	kind *kind
}

var _ runtime.CacheableObject = &list{}

// GetObjectKind is empty, as it is for lists of the internal version.
func (l *list) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject copies what may change: the list's metadata and its slice.
func (l *list) DeepCopyObject() runtime.Object {
	meta := l.meta()
	return &list{ListInterface: &meta, Items: append([]object{}, l.Items...), kind: l.kind}
}

func (l *list) meta() metav1.ListMeta {
	return metav1.ListMeta{
		ResourceVersion:    l.GetResourceVersion(),
		Continue:           l.GetContinue(),
		RemainingItemCount: l.GetRemainingItemCount(),
	}
}

// GetObject builds the API object, in the internal version.
func (l *list) GetObject() runtime.Object {
	return l.kind.buildList(l.meta(), l.Items)
}
