// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"fmt"
	"net/http"
	"path"

	"github.com/emicklei/go-restful/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// installPaths adds the routes and /apis/GROUP/VERSION of each version. They have no
// other method than GET: go-restful answers 405 for the others, HEAD included, as for
// the resources of the API server itself.
func (g *Group) installPaths(server *genericapiserver.GenericAPIServer) error {
	mediaTypes, streamTypes := negotiation.MediaTypesForSerializer(g.codecs)
	for _, version := range g.api.Versions {
		service := new(restful.WebService)
		service.Path(path.Join(genericapiserver.APIGroupPrefix, version.Group, version.Version)).
			Doc("API at /apis/" + version.String()).
			Consumes("*/*").
			Produces(append(mediaTypes[:len(mediaTypes):len(mediaTypes)], streamTypes...)...).
			ApiVersion(version.String())
		list, err := g.api.Scheme.New(version.WithKind(g.api.ListKind))
		if err != nil {
			return fmt.Errorf("make a %s of %s: %w", g.api.ListKind, version, err)
		}
		for _, r := range g.api.Routes {
			built, err := g.build(service, version, r, list)
			if err != nil {
				return fmt.Errorf("document %s: %w", r.Path, err)
			}
			service.Route(built)
		}
		discovery.NewAPIVersionHandler(g.codecs, version, discovery.APIResourceListerFunc(func() []metav1.APIResource {
			return *g.resources.Load()
		})).AddToWebService(service)
		server.Handler.GoRestfulContainer.Add(service)
	}
	return nil
}

// build makes the route of a version, in the way of the API server's installer.
func (g *Group) build(service *restful.WebService, version schema.GroupVersion, r Route, list any) (*restful.RouteBuilder, error) {
	verb, action, answer := "LIST", "list", list
	if r.WatchOnly {
		verb, action, answer = "WATCH", "watchlist", metav1.WatchEvent{}
	}
	serve := newEndpoint(g, version, r).serve
	serve = metrics.InstrumentRouteFunc(verb, version.Group, version.Version, Resource, "", "namespace", metrics.APIServerComponent, false, "", serve)
	route := service.GET(r.Path).To(serve).
		Doc(r.Doc).
		Operation(r.Operation).
		Returns(http.StatusOK, "OK", answer).
		Writes(answer).
		Metadata(endpoints.RouteMetaGVK, metav1.GroupVersionKind{Group: version.Group, Version: version.Version, Kind: g.api.ValueKind}).
		Metadata(endpoints.RouteMetaAction, action)
	if err := endpoints.AddObjectParams(service, route, &metav1.ListOptions{}, "sendInitialEvents", "fieldSelector", "continue", "limit", "resourceVersion", "resourceVersionMatch", "shardSelector"); err != nil {
		return nil, err
	}
	for _, p := range r.Parameters {
		if p.Query {
			route.Param(service.QueryParameter(p.Name, p.Doc))
		} else {
			route.Param(service.PathParameter(p.Name, p.Doc))
		}
	}
	return route, nil
}

// installGroup adds /apis/GROUP, and the group to /apis.
func (g *Group) installGroup(server *genericapiserver.GenericAPIServer) {
	group := metav1.APIGroup{Name: g.api.Group()}
	for i, version := range g.api.Versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: version.String(), Version: version.Version})
		// The same order as in APIGroup; higher comes first.
		g.aggregated.SetGroupVersionPriority(metav1.GroupVersion{Group: version.Group, Version: version.Version}, groupPriority, len(g.api.Versions)-i)
	}
	group.PreferredVersion = group.Versions[0]
	server.DiscoveryGroupManager.AddGroup(group)
	server.Handler.GoRestfulContainer.Add(discovery.NewAPIGroupHandler(g.codecs, group).WebService())
}

// groupPriority is that of the APIServices: groups whose resources have the names of
// others come last.
const groupPriority = 100
