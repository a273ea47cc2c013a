// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/consumers"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// apiTitle is the title of the OpenAPI documents.
const apiTitle = "Kubernetes metrics API"

// genericConfig returns the configuration of the generic API server: no etcd, no admission,
// no priority and fairness. It opens the port without serving yet, so that a port in use is
// an error at once.
func (o *Options) genericConfig(recorder *consumers.Recorder, c clock.Clock) (*genericapiserver.Config, *delegatedAuthentication, error) {
	if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", o.serviceNames(), []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, nil, fmt.Errorf("make a self-signed serving certificate: %w", err)
	}
	if err := o.Run.DefaultAdvertiseAddress(o.SecureServing.SecureServingOptions); err != nil {
		// Only for addresses in discovery, which no client uses.
		klog.Background().V(2).Info("No address to advertise", "err", err)
	}

	config := genericapiserver.NewConfig(codecs)
	if err := o.Run.ApplyTo(config); err != nil {
		return nil, nil, fmt.Errorf("apply generic flags: %w", err)
	}
	config.EffectiveVersion = effectiveVersion{config.EffectiveVersion}
	config.RequestInfoResolver = stream.ResolveOnce(requestInfoResolver(config))
	setOpenAPI(config)
	if pair := &o.SecureServing.ServerCert; pair.CertKey != (genericoptions.CertKey{}) {
		followed, err := newServingCertificate(pair.CertKey, c)
		if err != nil {
			return nil, nil, err
		}
		pair.CertKey, pair.GeneratedCert = genericoptions.CertKey{}, followed
	}
	if err := o.SecureServing.ApplyToConfig(config); err != nil {
		return nil, nil, fmt.Errorf("open --secure-port with the certificates for it: %w", err)
	}
	config.SecureServing.Listener = coalescingListener{userTimeoutListener{config.SecureServing.Listener}}
	authentication, err := o.applyAuthentication(config)
	if err != nil {
		return nil, nil, err
	}
	if config.Authorization.Authorizer, err = o.authorizer(); err != nil {
		return nil, nil, err
	}
	if err := o.Audit.ApplyTo(config); err != nil {
		return nil, nil, fmt.Errorf("set up auditing: %w", err)
	}
	if err := o.Features.ApplyTo(config, nil, nil); err != nil {
		return nil, nil, fmt.Errorf("apply feature flags: %w", err)
	}
	shuttingDown := config.ShutdownInitiatedNotify()
	config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		handler = consumers.WithRecording(handler, recorder)
		handler = withConnectionClose(genericapiserver.DefaultBuildHandlerChain(handler, c), shuttingDown)
		handler = stream.WithRequestMetrics(handler, c.RequestInfoResolver, countedAPIs())
		// Outside of all that replaces the connection's own ResponseWriter.
		return withRequestStack(stream.WithRequestMetadata(handler))
	}
	return config, authentication, nil
}

// serviceNames returns the names of the Service in a self-signed certificate.
func (o *Options) serviceNames() []string {
	if o.ServiceName == "" {
		return nil
	}
	return []string{o.ServiceName + "." + o.ServiceNamespace + ".svc"}
}

func setOpenAPI(config *genericapiserver.Config) {
	namer := openapinamer.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openAPIDefinitions, namer)
	config.OpenAPIConfig.Info.Title, config.OpenAPIConfig.Info.Version = apiTitle, version()
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openAPIDefinitions, namer)
	config.OpenAPIV3Config.Info.Title, config.OpenAPIV3Config.Info.Version = apiTitle, version()
}

// newRecorder returns a recorder of the clients of all enabled versions, preferred ones first.
func newRecorder(enabled sets.Set[schema.GroupVersion], c clock.PassiveClock) *consumers.Recorder {
	disabled := func(version schema.GroupVersion) bool { return !enabled.Has(version) }
	return consumers.NewRecorder(c, slices.DeleteFunc(compiledVersions(), disabled))
}
