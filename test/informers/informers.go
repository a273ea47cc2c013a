// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package informers makes stock client-go informers of metrics.k8s.io, in each of the
// ways in which a client may ask, for tests of a server. k8s.io/metrics generates
// none; these are of its clientset, of the dynamic client and of the metadata client.
package informers

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/metrics/pkg/apis/metrics"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"
)

// Client is the kind of client.
type Client string

const (
	// Typed is the clientset of k8s.io/metrics.
	Typed Client = "typed"
	// Dynamic is client-go's dynamic client: unstructured objects.
	Dynamic Client = "dynamic"
	// Metadata is client-go's metadata client: PartialObjectMetadata.
	Metadata Client = "metadata"
)

// Way is one way to ask for a resource.
type Way struct {
	Version, Resource string
	Client            Client
	// ContentType asked for; the dynamic and the metadata client choose their own.
	ContentType string
	// WatchList begins by a watch with initial events, and not by a list. The other
	// two clients always do.
	WatchList bool
}

func (w Way) String() string {
	if w.Client != Typed {
		return fmt.Sprintf("%s %s, %s client", w.Version, w.Resource, w.Client)
	}
	encoding := "JSON"
	if w.ContentType == runtime.ContentTypeProtobuf {
		encoding = "protobuf"
	}
	begin := "list and watch"
	if w.WatchList {
		begin = "WatchList"
	}
	return fmt.Sprintf("%s %s, %s, %s", w.Version, w.Resource, encoding, begin)
}

// Ways are all ways to ask for metrics.k8s.io.
func Ways() []Way {
	var all []Way
	for _, version := range []string{"v1", "v1beta1"} {
		for _, resource := range []string{"nodes", "pods"} {
			for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
				for _, watchList := range []bool{true, false} {
					all = append(all, Way{version, resource, Typed, contentType, watchList})
				}
			}
			for _, client := range []Client{Dynamic, Metadata} {
				all = append(all, Way{Version: version, Resource: resource, Client: client, WatchList: true})
			}
		}
	}
	return all
}

// New makes an informer of all namespaces, without resync, that has not begun.
func New(config *rest.Config, way Way) (cache.SharedIndexInformer, error) {
	resource := schema.GroupVersionResource{Group: metrics.GroupName, Version: way.Version, Resource: way.Resource}
	switch way.Client {
	case Dynamic:
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return dynamicinformer.NewFilteredDynamicInformer(client, resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer(), nil
	case Metadata:
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return metadatainformer.NewFilteredMetadataInformer(client, resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer(), nil
	}
	typed := rest.CopyConfig(config)
	typed.ContentType, typed.AcceptContentTypes = way.ContentType, way.ContentType
	client, err := metricsclient.NewForConfig(typed)
	if err != nil {
		return nil, err
	}
	var getter cache.Getter
	var object runtime.Object
	switch way.Version + " " + way.Resource {
	case "v1 nodes":
		getter, object = client.MetricsV1().RESTClient(), &metricsv1.NodeMetrics{}
	case "v1 pods":
		getter, object = client.MetricsV1().RESTClient(), &metricsv1.PodMetrics{}
	case "v1beta1 nodes":
		getter, object = client.MetricsV1beta1().RESTClient(), &metricsv1beta1.NodeMetrics{}
	case "v1beta1 pods":
		getter, object = client.MetricsV1beta1().RESTClient(), &metricsv1beta1.PodMetrics{}
	default:
		return nil, fmt.Errorf("no types for %s", resource)
	}
	source := cache.NewFilteredListWatchFromClient(getter, way.Resource, metav1.NamespaceAll, func(*metav1.ListOptions) {})
	if !way.WatchList {
		return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, listsFirst{}), object, 0, cache.Indexers{}), nil
	}
	return cache.NewSharedIndexInformer(source, object, 0, cache.Indexers{}), nil
}

// listsFirst is a client that says of itself that it cannot do WatchList: what the
// feature gate WatchListClient does to a whole process, for one informer.
type listsFirst struct{}

func (listsFirst) IsWatchListSemanticsUnSupported() bool { return true }
