// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// api describes one kind of metric; the rest of a Watcher is the same for all metrics APIs. T is the type that
// callers get, whatever version answered.
type api[T any] struct {
	group    string
	versions []string // in order of preference
	resource string   // its name in discovery
	// maybeUndiscovered means that the resource may be served though discovery does not list it: custom and external
	// metrics come and go, and discovery lists a bounded number of them.
	maybeUndiscovered bool

	// path returns the path of a list or a watch. They differ for custom metrics: kube-apiserver treats only the
	// /watch/ prefix as a long-running request, and cuts `?watch=true` on the path of lists after a minute.
	path func(version string, watch bool) string
	// listPathWatchable means that the path of lists can be watched if the path of watches fails.
	listPathWatchable bool
	query             url.Values

	decodeObject func(body []byte) (*T, error)
	decodeList   func(body []byte) ([]*T, error)

	key func(*T) string
	// sampleID identifies a data point of an object. The time orders data points; the string (the resourceVersion,
	// which metrics-server leaves empty, or the value) tells those of equal times apart.
	sampleID func(*T) (time.Time, string)
}

// converter decodes every version of an API group into one. It converts by way of the internal types, since schemes
// have no direct conversion between two versions.
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

// decoderTo returns a function that decodes an object, and fails for one of another kind than P.
func decoderTo[P runtime.Object](c converter) func(body []byte) (P, error) {
	return func(body []byte) (P, error) {
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
}

// listDecoderTo returns a function that decodes a list of kind L and returns its items.
func listDecoderTo[L runtime.Object, T any](c converter, items func(L) []T) func(body []byte) ([]*T, error) {
	decode := decoderTo[L](c)
	return func(body []byte) ([]*T, error) {
		list, err := decode(body)
		if err != nil {
			return nil, err
		}
		out := make([]*T, 0, len(items(list)))
		for _, item := range items(list) {
			out = append(out, &item) // a copy: a pointer into the slice would keep the whole list alive
		}
		return out, nil
	}
}

// selectors returns the query parameters for the selectors of options.
func selectors(options Options) url.Values {
	query := url.Values{}
	if options.LabelSelector != "" {
		query.Set("labelSelector", options.LabelSelector)
	}
	if options.FieldSelector != "" {
		query.Set("fieldSelector", options.FieldSelector)
	}
	return query
}
