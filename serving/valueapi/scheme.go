// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
)

// NewScheme knows the types of an API group and the meta types of requests and errors.
func NewScheme(install func(*runtime.Scheme)) *runtime.Scheme {
	scheme := runtime.NewScheme()
	install(scheme)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

// newCodecs returns codecs that encode long lists item by item. CBOR is negotiated whether or
// not the process has CBORServingAndStorage on: that gate is about storage and apply, too.
func newCodecs(scheme *runtime.Scheme) serializer.CodecFactory {
	return serializer.NewCodecFactory(scheme,
		serializer.WithStreamingCollectionEncodingToJSON(),
		serializer.WithStreamingCollectionEncodingToProtobuf(),
		serializer.WithSerializer(cbor.NewSerializerInfo))
}
