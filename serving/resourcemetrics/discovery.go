// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"fmt"
	"path"
	"sync/atomic"

	"github.com/emicklei/go-restful/v3"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/metrics/pkg/apis/metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// Group is metrics.k8s.io in an API server.
type Group struct {
	streams  *Streams
	versions []schema.GroupVersion
	// aggregated serves /apis.
	aggregated aggregated.ResourceManager

	// with and without describe the resources with the verb watch and without it.
	with, without described

	// resources is the current content of /apis/GROUP/VERSION.
	resources atomic.Pointer[[]metav1.APIResource]
}

// described are the resources in the forms of both documents of discovery.
type described struct {
	resources  []metav1.APIResource
	aggregated []apidiscoveryv2.APIResourceDiscovery
}

// InstallAPI adds metrics.k8s.io to an API server, in those versions that are
// enabled, the preferred one first. It serves watch until ServeWatch says otherwise. Requests
// fail with the error of available, unless that is nil.
func InstallAPI(server *genericapiserver.GenericAPIServer, store *samplestore.Store, streams *Streams, available func() error, enabled func(schema.GroupVersion) bool) (*Group, error) {
	info := newAPIGroup(store, streams, available, enabled)
	g := &Group{streams: streams, versions: info.PrioritizedVersions, aggregated: server.AggregatedDiscoveryGroupManager}
	if len(g.versions) == 0 {
		return g, nil
	}
	g.with, g.without = describeResources("get", "list", "watch"), describeResources("get", "list")
	if err := server.InstallAPIGroup(&info); err != nil {
		return nil, fmt.Errorf("install %s: %w", metrics.GroupName, err)
	}
	for _, version := range g.versions {
		service, err := webService(server.Handler.GoRestfulContainer, version)
		if err != nil {
			return nil, err
		}
		if err := g.replaceDiscovery(service, version); err != nil {
			return nil, fmt.Errorf("serve discovery of %s: %w", version, err)
		}
		service.Filter(streamTables)
	}
	g.advertise(true)
	return g, nil
}

// webService returns what the installer has made of a version.
func webService(container *restful.Container, version schema.GroupVersion) (*restful.WebService, error) {
	root := path.Join(genericapiserver.APIGroupPrefix, version.Group, version.Version)
	for _, service := range container.RegisteredWebServices() {
		if service.RootPath() == root {
			return service, nil
		}
	}
	return nil, fmt.Errorf("the API server has no web service at %s", root)
}

// replaceDiscovery lets /apis/GROUP/VERSION follow the resources: the installer
// has it answer for ever what they were at first.
func (g *Group) replaceDiscovery(service *restful.WebService, version schema.GroupVersion) error {
	// Only in between: routes that may change are copied for each request.
	service.SetDynamicRoutes(true)
	defer service.SetDynamicRoutes(false)
	if err := service.RemoveRoute(service.RootPath()+"/", "GET"); err != nil {
		return err
	}
	handler := discovery.NewAPIVersionHandler(codecs, version, discovery.APIResourceListerFunc(func() []metav1.APIResource {
		return *g.resources.Load()
	}))
	handler.AddToWebService(service)
	return nil
}

// ServeWatch enables or disables the verb watch in all versions, see stream.WatchVerb. Get and
// list do not change.
func (g *Group) ServeWatch(serve bool) { g.streams.Serve(serve, g.advertise) }

// advertise writes the resources, with or without the verb watch, to both discovery documents.
func (g *Group) advertise(watch bool) {
	d := &g.without
	if watch {
		d = &g.with
	}
	g.resources.Store(&d.resources)
	for _, version := range g.versions {
		g.aggregated.AddGroupVersion(version.Group, apidiscoveryv2.APIVersionDiscovery{
			Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Version: version.Version, Resources: d.aggregated,
		})
	}
}

// describeResources returns what discovery tells of resources that have these verbs.
func describeResources(verbs ...string) described {
	resources := make([]metav1.APIResource, 0, 2)
	for _, k := range []*kind{nodes, pods} {
		resources = append(resources, metav1.APIResource{
			Name: k.resource, Namespaced: k.namespaced, Kind: k.name, Verbs: verbs,
		})
	}
	converted, err := endpoints.ConvertGroupVersionIntoToDiscovery(resources)
	utilruntime.Must(err)
	return described{resources: resources, aggregated: converted}
}
