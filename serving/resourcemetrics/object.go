// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// object wraps a data point as a NodeMetrics or PodMetrics that an encoder can write without
// building the API object. It is immutable and may be shared.
type object struct {
	kind  *kind
	point *samplestore.Object
}

var (
	_ runtime.CacheableObject   = &object{}
	_ metav1.ObjectMetaAccessor = &object{}
)

// GetObjectKind returns an empty kind, as for objects of the internal version.
func (o *object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject copies the wrapper, since the point is immutable.
func (o *object) DeepCopyObject() runtime.Object {
	return new(*o)
}

// GetObjectMeta is used by meta.Accessor for Table and PartialObjectMetadata.
func (o *object) GetObjectMeta() metav1.Object {
	return new(objectMeta(o.point))
}

// GetObject builds the API object, in the internal version.
func (o *object) GetObject() runtime.Object {
	return o.kind.build(o.point)
}

// list wraps data points as a NodeMetricsList or PodMetricsList. Package meta recognizes it as a
// list by its field Items.
type list struct {
	metav1.ListInterface
	Items []object

	kind *kind
	// table is how the list is to be encoded as a Table, or nil.
	table *tableFormat
}

var _ runtime.CacheableObject = &list{}

// GetObjectKind returns an empty kind, as for lists of the internal version.
func (l *list) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject copies the mutable parts: the list's metadata and its slice.
func (l *list) DeepCopyObject() runtime.Object {
	return &list{ListInterface: new(l.meta()), Items: append([]object{}, l.Items...), kind: l.kind, table: l.table}
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
