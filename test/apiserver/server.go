// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver makes generic API servers for tests of API groups, and sends requests to them.
package apiserver

import (
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/common"
)

// Definitions returns the OpenAPI definitions of all of the functions together.
func Definitions(all ...common.GetOpenAPIDefinitions) common.GetOpenAPIDefinitions {
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		merged := map[string]common.OpenAPIDefinition{}
		for _, get := range all {
			maps.Copy(merged, get(ref))
		}
		return merged
	}
}

// New returns an API server without a port that serves everybody. It is destroyed when the test
// ends; the API groups are to be installed before its PrepareRun.
func New(t testing.TB, scheme *runtime.Scheme, definitions common.GetOpenAPIDefinitions, change ...func(*genericapiserver.Config)) *genericapiserver.GenericAPIServer {
	t.Helper()
	config := genericapiserver.NewConfig(serializer.NewCodecFactory(scheme))
	config.ExternalAddress = "metrics.test:443"
	config.LoopbackClientConfig = &restclient.Config{}
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.Authentication.Authenticator = anonymous.NewAuthenticator(nil)
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	namer := openapinamer.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	for _, f := range change {
		f(config)
	}
	server, err := config.Complete(nil).New("test", genericapiserver.NewEmptyDelegate())
	if err != nil {
		t.Fatalf("make the API server: %v", err)
	}
	t.Cleanup(server.Destroy)
	return server
}
