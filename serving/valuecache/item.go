// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valuecache

import (
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// item is a data point joined with the labels by which watches select it, as they were
// when the entry was last updated. It is immutable once it is in an entry.
type item struct {
	name   string
	labels map[string]string
	*kept
}

// kept is a data point and the events that tell of it. It stays the same while labels change.
type kept struct {
	entry    *entry
	point    Point
	sequence uint64
	events   samplestore.Encodings
}

var _ stream.Item = &item{}

// ItemKey returns the subscription's ID and the object's name, or the labels of the value in order.
func (i *item) ItemKey() samplestore.Key { return samplestore.Key{Namespace: i.entry.ID, Name: i.name} }

// ItemLabels are those of the object, or of the value where it describes none.
func (i *item) ItemLabels() map[string]string { return i.labels }

// ItemSequence is the number of the data point in its cache.
func (i *item) ItemSequence() uint64 { return i.sequence }

// CacheEncode writes the event of the data point.
func (i *item) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	return stream.EncodeOnce(&i.events, id, i.event, encode, w)
}

// event returns the object of the event: that of another implementation is passed on.
func (i *item) event() runtime.Object {
	if i.point.Passed != nil {
		return i.point.Passed
	}
	return i.entry.Event(i.point)
}

func (i *item) compareName(name string) int { return strings.Compare(i.name, name) }

// holds says that another data point of the same key is not news: it has the same time and value, or was
// evaluated earlier. What the source gives is always news after what stood in for it: that is as of when the
// source was found to fail.
func (k *kept) holds(o *kept, earlier bool) bool {
	if k.point.Fallback && !o.point.Fallback {
		return false
	}
	return earlier || k.point.Time.Equal(o.point.Time) && k.point.Quantity.Cmp(o.point.Quantity) == 0 && k.point.Fallback == o.point.Fallback &&
		equality.Semantic.DeepEqual(k.point.Passed, o.point.Passed)
}
