// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"reflect"
	"slices"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// maxCachedLabels is the largest number of labels that a labelCache keeps, so that it stays small
// whatever labels objects have.
const maxCachedLabels = 16

// labelCache keeps the encoded labels of recent objects. Objects with equal labels share one map, and in
// a list the pods of a workload follow one another.
type labelCache struct {
	encode func([]byte, []samplestore.Label) []byte
	// sorted is reused by get.
	sorted []samplestore.Label
	recent [64]encodedLabels
}

type encodedLabels struct {
	labels  map[string]string
	encoded []byte
}

// get returns the encoded labels, which are valid until the next call. The map must not be changed
// while it may be in the cache.
func (c *labelCache) get(labels map[string]string) []byte {
	if len(labels) == 0 {
		return nil
	}
	if len(labels) > maxCachedLabels {
		return c.encode(nil, sortedLabels(nil, labels))
	}
	entry, found := c.find(labels)
	if !found {
		c.sorted = sortedLabels(c.sorted[:0], labels)
		entry.labels, entry.encoded = labels, c.encode(entry.encoded[:0], c.sorted)
	}
	return entry.encoded
}

// find returns the entry of a map, and whether it is that map's now.
func (c *labelCache) find(labels map[string]string) (*encodedLabels, bool) {
	id := reflect.ValueOf(labels).Pointer()
	// Of the product, the upper bits depend on all bits of the address.
	entry := &c.recent[uint64(id)*0x9e3779b97f4a7c15>>58]
	return entry, reflect.ValueOf(entry.labels).Pointer() == id
}

// sortedLabels appends labels in the order in which the API writes them.
func sortedLabels(to []samplestore.Label, labels map[string]string) []samplestore.Label {
	for name, value := range labels {
		to = append(to, samplestore.Label{Name: name, Value: value})
	}
	slices.SortFunc(to, func(a, b samplestore.Label) int { return strings.Compare(a.Name, b.Name) })
	return to
}

// timeCache keeps times in JSON: the data points of a list are of the same few seconds.
type timeCache [64]struct {
	second  int64
	encoded []byte
}

// get returns a time in JSON, which is valid until the next call.
func (c *timeCache) get(t samplestore.Time) []byte {
	if t == 0 {
		return []byte("null")
	}
	second := t.Unix()
	entry := &c[uint64(second)%uint64(len(c))]
	if entry.second != second || len(entry.encoded) == 0 {
		entry.second, entry.encoded = second, appendJSONTime(entry.encoded[:0], t.AsTime())
	}
	return entry.encoded
}
