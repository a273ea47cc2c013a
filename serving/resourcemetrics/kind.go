// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/metrics/pkg/apis/metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// kind is what nodes and pods differ in. API objects are of the internal
// version: the codec converts them where it was asked to.
type kind struct {
	name, resource string
	namespaced     bool

	newObject func() runtime.Object
	newList   func() runtime.Object
	// build makes the API object of a data point, for the caller to own.
	build func(*samplestore.Object) runtime.Object
	// buildList does so for a list; its items are never nil.
	buildList func(metav1.ListMeta, []object) runtime.Object
	// json and protobuf append a data point as it is inside of a list: without kind and apiVersion,
	// which differ between versions.
	json     func(*jsonEncoder, []byte, *samplestore.Object) []byte
	protobuf func(*protobufEncoder, []byte, *samplestore.Object) []byte
	// protobufSize returns how many bytes protobuf appends.
	protobufSize func(*protobufEncoder, *samplestore.Object) int
	// eventFragments encode a data point for watches, by samplestore.Encoding.
	eventFragments [2]func(*samplestore.Object) ([]byte, error)
	// frames are what watch events have around a fragment.
	frames map[runtime.Identifier]*eventFrame
	// item is a data point as a hub distributes it.
	item func(*samplestore.Object) stream.Item
	// newBookmark makes an API object of metadata and nothing else.
	newBookmark func(metav1.ObjectMeta) runtime.Object
}

// api is what the kind's requests in a version are counted by.
func (k *kind) api(version schema.GroupVersion) stream.API {
	return stream.API{Group: version.Group, Version: version.Version, Resource: k.resource}
}

var nodes = &kind{
	name:     "NodeMetrics",
	resource: "nodes",

	newObject: func() runtime.Object { return &metrics.NodeMetrics{} },
	newList:   func() runtime.Object { return &metrics.NodeMetricsList{} },
	build:     func(o *samplestore.Object) runtime.Object { return new(nodeMetrics(o)) },
	buildList: func(meta metav1.ListMeta, items []object) runtime.Object {
		list := &metrics.NodeMetricsList{ListMeta: meta, Items: make([]metrics.NodeMetrics, len(items))}
		for i := range items {
			list.Items[i] = nodeMetrics(items[i].point)
		}
		return list
	},
	json:         (*jsonEncoder).node,
	protobuf:     (*protobufEncoder).node,
	protobufSize: (*protobufEncoder).nodeSize,
	eventFragments: [2]func(*samplestore.Object) ([]byte, error){
		samplestore.EncodingJSON:     eventFragment(&jsonEncoders, "nodes", encodingJSON, (*jsonEncoder).node),
		samplestore.EncodingProtobuf: eventFragment(&protobufEncoders, "nodes", encodingProtobuf, (*protobufEncoder).node),
	},
	frames: eventFrames("NodeMetrics"),
	item:   func(o *samplestore.Object) stream.Item { return nodePoint{point{o}} },
	newBookmark: func(meta metav1.ObjectMeta) runtime.Object {
		return &metrics.NodeMetrics{ObjectMeta: meta, Usage: corev1.ResourceList{}}
	},
}

var pods = &kind{
	name:       "PodMetrics",
	resource:   "pods",
	namespaced: true,

	newObject: func() runtime.Object { return &metrics.PodMetrics{} },
	newList:   func() runtime.Object { return &metrics.PodMetricsList{} },
	build:     func(o *samplestore.Object) runtime.Object { return new(podMetrics(o)) },
	buildList: func(meta metav1.ListMeta, items []object) runtime.Object {
		list := &metrics.PodMetricsList{ListMeta: meta, Items: make([]metrics.PodMetrics, len(items))}
		for i := range items {
			list.Items[i] = podMetrics(items[i].point)
		}
		return list
	},
	json:         (*jsonEncoder).pod,
	protobuf:     (*protobufEncoder).pod,
	protobufSize: (*protobufEncoder).podSize,
	eventFragments: [2]func(*samplestore.Object) ([]byte, error){
		samplestore.EncodingJSON:     eventFragment(&jsonEncoders, "pods", encodingJSON, (*jsonEncoder).pod),
		samplestore.EncodingProtobuf: eventFragment(&protobufEncoders, "pods", encodingProtobuf, (*protobufEncoder).pod),
	},
	frames: eventFrames("PodMetrics"),
	item:   func(o *samplestore.Object) stream.Item { return podPoint{point{o}} },
	newBookmark: func(meta metav1.ObjectMeta) runtime.Object {
		return &metrics.PodMetrics{ObjectMeta: meta, Containers: []metrics.ContainerMetrics{}}
	},
}

func nodeMetrics(o *samplestore.Object) metrics.NodeMetrics {
	node := metrics.NodeMetrics{
		ObjectMeta: objectMeta(o),
		Timestamp:  metav1.Time{Time: o.Point.Time.AsTime()},
		Window:     metav1.Duration{Duration: o.Point.Window},
		Usage:      corev1.ResourceList{},
	}
	if len(o.Point.Usages) > 0 {
		node.Usage = resourceList(o.Point.Usages[0])
	}
	return node
}

func podMetrics(o *samplestore.Object) metrics.PodMetrics {
	pod := metrics.PodMetrics{
		ObjectMeta: objectMeta(o),
		Timestamp:  metav1.Time{Time: o.Point.Time.AsTime()},
		Window:     metav1.Duration{Duration: o.Point.Window},
		Containers: make([]metrics.ContainerMetrics, len(o.Point.Usages)),
	}
	for i, u := range o.Point.Usages {
		pod.Containers[i] = metrics.ContainerMetrics{Name: u.Name, Usage: resourceList(u)}
	}
	return pod
}

// objectMeta is the metadata of a NodeMetrics or PodMetrics. Its
// creationTimestamp is the sample's time, since that is when this data point
// came to be: with the time of the request, as metrics-server has it, no two
// answers would have the same bytes. The caller owns
// the result, labels included.
func objectMeta(o *samplestore.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:              o.Name,
		Namespace:         o.Namespace,
		ResourceVersion:   o.Point.ResourceVersion(),
		CreationTimestamp: metav1.Time{Time: o.Point.Time.AsTime()},
		Labels:            maps.Clone(o.Meta.Labels),
	}
}
