// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// converter reads every version of an API group into one. It goes by the internal types: schemes have no direct way
// between two versions.
type converter struct {
	scheme  *runtime.Scheme
	decoder runtime.Decoder
	version schema.GroupVersion
}

func newConverter(version schema.GroupVersion, install func(*runtime.Scheme)) converter {
	scheme := runtime.NewScheme()
	install(scheme)
	return converter{scheme: scheme, decoder: serializer.NewCodecFactory(scheme).UniversalDecoder(), version: version}
}

// decode returns an error, too, for an object of another kind than P.
func decode[P runtime.Object](c converter, body []byte) (P, error) {
	var none P
	internal, err := runtime.Decode(c.decoder, body)
	if err != nil {
		return none, err
	}
	object, err := c.scheme.ConvertToVersion(internal, c.version)
	if err != nil {
		return none, err
	}
	typed, ok := object.(P)
	if !ok {
		return none, fmt.Errorf("the server sent %T where %T was asked for", object, none)
	}
	return typed, nil
}
