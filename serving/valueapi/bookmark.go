// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// bookmark is the object of a BOOKMARK event: an empty list, since a value has no
// place for a resourceVersion.
//
// The API server's watch handler looks into the metadata of every bookmark for the end
// of the initial events. A list has no such metadata, so this stands in for one until
// it is encoded.
type bookmark struct {
	metav1.ObjectMeta
	list runtime.Object
}

var (
	_ runtime.CacheableObject   = &bookmark{}
	_ metav1.ObjectMetaAccessor = &bookmark{}
)

func newBookmark(list runtime.Object, resourceVersion string) runtime.Object {
	b := &bookmark{ObjectMeta: metav1.ObjectMeta{ResourceVersion: resourceVersion}, list: list}
	// Neither fails for a list, and all of an API's are.
	if accessor, err := meta.ListAccessor(list); err == nil {
		accessor.SetResourceVersion(resourceVersion)
	}
	_ = meta.SetList(list, []runtime.Object{})
	return b
}

// CacheEncode encodes the list. There is nothing to keep: bookmarks are rare.
func (b *bookmark) CacheEncode(_ runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	return encode(b.list, w)
}

// GetObject returns the list.
func (b *bookmark) GetObject() runtime.Object { return b.list.DeepCopyObject() }

// GetObjectKind is empty, as it is for objects of the internal version.
func (b *bookmark) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject copies the list, too.
func (b *bookmark) DeepCopyObject() runtime.Object {
	return &bookmark{ObjectMeta: *b.DeepCopy(), list: b.list.DeepCopyObject()}
}
