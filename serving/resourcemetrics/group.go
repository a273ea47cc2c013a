// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcemetrics serves metrics.k8s.io, v1 and v1beta1, from the
// newest data points: NodeMetrics as `nodes` and PodMetrics as `pods`.
//
// A request walks through it like this: storage (get, list) picks data points,
// object and list wrap them without building API objects, and the negotiated
// encoder asks the wrapper first. JSON and protobuf are written object by object
// (list_json.go, fragment_json.go and the same for protobuf), and so are lists as
// Tables (table_request.go, table_list.go); whatever else is asked for (YAML, CBOR,
// metadata alone) is built from API objects. Watch events are assembled from the
// same fragments, which their data points keep (event.go, event_frame.go).
package resourcemetrics

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/metrics/pkg/apis/metrics"
	metricsinstall "k8s.io/metrics/pkg/apis/metrics/install"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

var (
	// Scheme knows the types of metrics.k8s.io and what every API server needs.
	Scheme = newScheme()
	// codecs serve the group. CBOR is negotiated whether or not the process has
	// CBORServingAndStorage on: that gate is about storage and apply, too.
	codecs = serializer.NewCodecFactory(Scheme,
		serializer.WithStreamingCollectionEncodingToJSON(),
		serializer.WithStreamingCollectionEncodingToProtobuf(),
		serializer.WithSerializer(cbor.NewSerializerInfo))
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	Install(scheme)
	return scheme
}

// Install adds metrics.k8s.io and the meta types of requests and errors to a scheme.
func Install(scheme *runtime.Scheme) {
	metricsinstall.Install(scheme)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
}

// GroupVersions returns every version that is compiled in, the preferred one first.
func GroupVersions() []schema.GroupVersion {
	return Scheme.PrioritizedVersionsForGroup(metrics.GroupName)
}

// APIs returns what requests are counted by: the resources in every version that
// is compiled in.
func APIs() []stream.API {
	var apis []stream.API
	for _, version := range GroupVersions() {
		apis = append(apis, nodes.api(version), pods.api(version))
	}
	return apis
}

// newAPIGroup returns metrics.k8s.io in those versions that are enabled, the
// preferred one first. Where none is, PrioritizedVersions is empty and there is
// nothing to install.
func newAPIGroup(store *samplestore.Store, streams *Streams, available func() error, enabled func(schema.GroupVersion) bool) genericapiserver.APIGroupInfo {
	info := genericapiserver.NewDefaultAPIGroupInfo(metrics.GroupName, Scheme, runtime.NewParameterCodec(Scheme), codecs)
	info.NegotiatedSerializer = codecs
	info.PrioritizedVersions = nil
	for _, version := range GroupVersions() {
		if !enabled(version) {
			continue
		}
		info.PrioritizedVersions = append(info.PrioritizedVersions, version)
		info.VersionedResourcesStorageMap[version.Version] = map[string]rest.Storage{
			nodes.resource: newStorage(nodes, version, store.Nodes, streams.nodes, streams, available),
			pods.resource:  newStorage(pods, version, store.Pods, streams.pods, streams, available),
		}
	}
	return info
}
