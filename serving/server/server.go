// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	apiregistration "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/point"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// Server is the serving component: sources, store and API in one process.
type Server struct {
	generic *genericapiserver.GenericAPIServer
	// background runs from before the port opens until after it has closed, so
	// that answers stay fresh while the server drains.
	background []func(context.Context)
}

// New puts the parts together. It opens the port and reads --backend-file, but
// asks nothing of kube-apiserver, which may be away.
func New(o *Options, c clock.WithTicker) (*Server, error) {
	registerMetrics()
	client, err := o.clientConfig()
	if err != nil {
		return nil, err
	}
	recorder, err := o.newRecorder(c)
	if err != nil {
		return nil, err
	}
	config, authentication, err := o.genericConfig(recorder)
	if err != nil {
		return nil, err
	}
	var file *backendFile
	var initial settings
	if o.BackendFile != "" {
		file = &backendFile{path: o.BackendFile, clock: c}
		initial, err = file.load()
	} else {
		initial, err = settingsFrom(&v1alpha1.MetricsBackendSpec{})
	}
	if err != nil {
		return nil, err
	}
	store := point.NewStore(c, initial.maxAge)
	admission := stream.NewAdmission(c, rand.Float64, initial.watch.limits)
	watching := &watches{admission: admission, streams: resourcemetrics.NewStreams(store, c, rand.Float64, admission, initial.watch.stream)}
	ca, err := newKubeletCA(o.KubeletCAFile, client)
	if err != nil {
		return nil, err
	}
	source, err := newSource(client, store, c, ca.content(), initial.kubelet)
	if err != nil {
		return nil, err
	}
	ca.apply = source.SetDefaultCA
	inForce := &configuration{source: source, store: store, watches: watching}
	reloadSuccessful.Set(1)
	follow, read, err := o.follow(client, file, inForce)
	if err != nil {
		return nil, err
	}
	feeds, err := newFeeds(client, store, source)
	if err != nil {
		return nil, err
	}
	gates := []gate{authentication, feeds, &backendGate{read: read, clock: c}, &ratesGate{source: source, clock: c, timeout: o.RatesTimeout}}
	versions, err := o.newVersionsGate(client, c)
	if err != nil {
		return nil, err
	}
	if versions != nil {
		gates = append(gates, versions)
	}
	first := newFirstReadiness(c, gates...)

	config.AddReadyzChecks(first.checks()...)
	config.AddHealthChecks(healthz.NamedCheck("kubelet-source", func(*http.Request) error { return source.Alive(c.Now()) }))
	generic, err := config.Complete(nil).New("serving", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("make the generic API server: %w", err)
	}
	if watching.group, err = o.install(generic, store, watching.streams); err != nil {
		return nil, err
	}
	watching.Apply(initial.watch)
	generic.Handler.NonGoRestfulMux.Handle(v1alpha1.SourcesPath, sourcesHandler(source, inForce))
	generic.Handler.NonGoRestfulMux.Handle(v1alpha1.ConsumersPath, consumersHandler(recorder))

	fresh := &freshness{source: source, clock: c}
	ending := &drain{
		shuttingDown: config.ShutdownInitiatedNotify(), delay: config.ShutdownDelayDuration, clock: c,
		open: admission.Open, end: watching.streams.Drain,
	}
	s := &Server{generic: generic, background: []func(context.Context){
		source.Run, first.run, follow, ca.run, fresh.run, watching.streams.Run, ending.run,
	}}
	for _, f := range feeds {
		s.background = append(s.background, f.informer.RunWithContext)
	}
	return s, nil
}

// Run serves until the context ends, and then answers what is under way.
func (s *Server) Run(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, run := range s.background {
		running.Go(func() { run(background) })
	}
	err := s.generic.PrepareRun().RunWithContext(ctx)
	stop()
	running.Wait()
	return err
}

// newSource makes the scrapes of kubelets.
func newSource(client *rest.Config, store *point.Store, c clock.WithTicker, ca []byte, initial kubelet.Settings) (*kubelet.Source, error) {
	source, err := kubelet.NewSource(kubelet.Options{
		Store:      store,
		Clock:      c,
		Rand:       rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), //nolint:gosec // Spreads load; keeps no secret.
		RestConfig: client,
		DefaultCA:  ca,
	}, initial)
	if err != nil {
		return nil, fmt.Errorf("set up the scrapes of kubelets (--kubelet-ca-file names other authorities): %w", err)
	}
	return source, nil
}

// follow returns what keeps the settings up to date: it follows the file, or
// --backend in the cluster, or, with neither, nothing. read returns nil once they
// have been read.
func (o *Options) follow(client *rest.Config, file *backendFile, inForce *configuration) (run func(context.Context), read func() error, err error) {
	known := func() error { return nil }
	switch {
	case file != nil:
		file.apply = func(ctx context.Context, backend *v1alpha1.MetricsBackend) { inForce.apply(ctx, "file", backend) }
		return file.run, known, nil
	case o.Backend != "":
		follower, err := newBackendFollower(client, o.Backend, func(ctx context.Context, backend *v1alpha1.MetricsBackend) {
			inForce.apply(ctx, "cluster", backend)
		})
		if err != nil {
			return nil, nil, err
		}
		return follower.run, follower.read, nil
	}
	return func(ctx context.Context) {
		klog.FromContext(ctx).Info("Neither --backend nor --backend-file is given; the default settings stay in force")
	}, known, nil
}

// newFeeds makes the informers of nodes and pods.
func newFeeds(client *rest.Config, store *point.Store, source *kubelet.Source) (syncGate, error) {
	typed, err := kubernetes.NewForConfig(withProtobuf(client))
	if err != nil {
		return nil, fmt.Errorf("make a client of nodes: %w", err)
	}
	partial, err := metadata.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("make a client of pod metadata: %w", err)
	}
	nodes, err := newNodeFeed(typed, store.Nodes, source)
	if err != nil {
		return nil, err
	}
	pods, err := newPodFeed(partial, store.Pods)
	if err != nil {
		return nil, err
	}
	return syncGate{nodes, pods}, nil
}

// newVersionsGate returns nil where no Service is in front of this process.
func (o *Options) newVersionsGate(client *rest.Config, c clock.PassiveClock) (gate, error) {
	if o.ServiceName == "" {
		return nil, nil
	}
	served, err := o.enabledVersions()
	if err != nil {
		return nil, err
	}
	selector, err := backendSelector(o.Backend)
	if err != nil {
		return nil, fmt.Errorf("select APIServices by --backend %q: %w", o.Backend, err)
	}
	aggregator, err := apiregistration.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("make a client of APIServices: %w", err)
	}
	typed, err := kubernetes.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("make a client of EndpointSlices: %w", err)
	}
	service := types.NamespacedName{Namespace: o.ServiceNamespace, Name: o.ServiceName}
	return &versionsGate{
		served:        served,
		clock:         c,
		since:         c.Now(),
		registrations: &serviceRegistrations{client: aggregator, service: service, selector: selector},
		peers: &servicePeers{
			client: typed.DiscoveryV1(), service: service, self: o.PodIP, config: client, caFile: o.ServingCAFile,
		},
	}, nil
}

// install adds the API group in the versions that are enabled.
func (o *Options) install(generic *genericapiserver.GenericAPIServer, store *point.Store, streams *resourcemetrics.Streams) (*resourcemetrics.Group, error) {
	enabled, err := o.enabledVersions()
	if err != nil {
		return nil, err
	}
	return resourcemetrics.InstallAPI(generic, store, streams, enabled.Has)
}
