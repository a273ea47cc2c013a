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

// newAPI returns an api that decodes every version of a group into one, with the selectors of options. It converts by
// way of the internal types, since schemes have no direct conversion between two versions.
func newAPI[L runtime.Object, T any](version schema.GroupVersion, install func(*runtime.Scheme), options Options, items func(L) []T) api[T] {
	scheme := runtime.NewScheme()
	install(scheme)
	decoder := serializer.NewCodecFactory(scheme).UniversalDecoder()
	decode := func(body []byte) (any, error) {
		internal, err := runtime.Decode(decoder, body)
		if err != nil {
			return nil, err
		}
		return scheme.ConvertToVersion(internal, version)
	}
	return api[T]{
		group:        version.Group,
		query:        selectors(options),
		decodeObject: func(body []byte) (*T, error) { return as[*T](decode(body)) },
		decodeList: func(body []byte) ([]*T, error) {
			list, err := as[L](decode(body))
			if err != nil {
				return nil, err
			}
			out := make([]*T, 0, len(items(list)))
			for _, item := range items(list) {
				out = append(out, &item) // a copy: a pointer into the slice would keep the whole list alive
			}
			return out, nil
		},
	}
}

// as returns an object that was decoded, and fails for one of another kind than P.
func as[P any](object any, err error) (P, error) {
	typed, ok := object.(P)
	if err == nil && !ok {
		err = fmt.Errorf("the server sent %T where %T was asked for", object, typed)
	}
	return typed, err
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
