// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricsapi is a source that is another implementation of the custom or external metrics API, such as
// KEDA's adapter. Its values and errors are passed on unchanged.
//
// The expression of a query is a path, and the parameters, of the API below its group and version.
package metricsapi

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

const (
	// concurrency limits the requests at a time. An implementation may ask elsewhere for each, and be slow.
	concurrency = 64
	// timeout of a request. It also ends when no client waits for it.
	timeout = 30 * time.Second
	// healthyProbeInterval and failingProbeInterval are the times between two probes, and minProbeInterval the
	// least time. Without a token, which is requested in the background, it is the time to the next.
	healthyProbeInterval = 30 * time.Second
	failingProbeInterval = 10 * time.Second
	minProbeInterval     = time.Second
	// resourcesKept is how long the resources of discovery are kept, and maxResources limits those that are listed:
	// the others are answered, too.
	resourcesKept = 10 * time.Minute
	maxResources  = 5000
)

// Address returns the address of a Service and a port of it, for net.Dial. Errors that are Failures keep their reason.
type Address func(ctx context.Context, service v1alpha1.ExistingService) (string, error)

// Source is another implementation of a metrics API. Its methods may be called at any time, also before Run.
type Source struct {
	spec   v1alpha1.MetricsAPISource
	name   string
	clock  clock.WithTicker
	client *sourceclient.Client
	// large limits the bodies that are longer than smallBody.
	large *semaphore.Weighted
	// probes is set when a request has failed.
	probes wake.Signal

	mu     sync.Mutex
	health v1alpha1.SourceHealth
	// version of the group, once it is known, and resources of its discovery, of the last success.
	version   string
	resources []metav1.APIResource
	succeeded time.Time
}

var (
	_ query.ConcurrentSource = (*Source)(nil)
	_ query.ProbedSource     = (*Source)(nil)
)

// New returns a source for a spec that is valid and has its defaults.
func New(o sourceclient.Options, address Address, spec v1alpha1.MetricsAPISource) *Source {
	s := &Source{
		spec: spec, name: o.Name, clock: o.Clock, large: semaphore.NewWeighted(maxLarge), probes: wake.NewSignal(),
		health: v1alpha1.SourceHealth{Name: o.Name},
	}
	host := spec.Service.Name + "." + spec.Service.Namespace + ".svc"
	o.MaxRequests = concurrency
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	o.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		to, err := address(ctx, spec.Service)
		if err != nil {
			return nil, err
		}
		return dial(ctx, network, to)
	}
	tls := spec.TLS
	tls.ServerName = cmp.Or(tls.ServerName, host)
	s.client = sourceclient.New(o, sourceclient.Spec{
		Endpoint: "https://" + host, TLS: tls, Direct: true,
		Authentication: v1alpha1.SourceAuthentication{ServiceAccountToken: &v1alpha1.SourceServiceAccountToken{}},
	}, func() {})
	return s
}

// Concurrency implements query.ConcurrentSource.
func (s *Source) Concurrency() int { return concurrency }

// Answered implements query.ProbedSource.
func (s *Source) Answered() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.succeeded
}

// Health returns whether the implementation answers. Before the first answer it is unhealthy without a reason.
func (s *Source) Health() v1alpha1.SourceHealth {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health
}

// Run probes the implementation until the context ends: regularly, and after failed requests.
func (s *Source) Run(ctx context.Context) {
	defer s.client.Close()
	for {
		f := s.probe(ctx)
		next := healthyProbeInterval
		switch {
		case f == nil:
		case f.Reason == query.ReasonCredentials:
			next = minProbeInterval
		default:
			next = failingProbeInterval
		}
		if !wake.Sleep(ctx, s.clock, minProbeInterval) || !s.probes.Wait(ctx, s.clock, next-minProbeInterval) {
			return
		}
	}
}

// Evaluate implements query.Source. Errors are *query.Failure.
func (s *Source) Evaluate(ctx context.Context, q query.Query, at time.Time) (*query.Result, error) {
	s.mu.Lock()
	version := s.version
	s.mu.Unlock()
	if version == "" {
		if f := s.probe(ctx); f != nil {
			return nil, f
		}
		return s.Evaluate(ctx, q, at)
	}
	result := &query.Result{Time: at}
	f := s.get(ctx, "/apis/"+string(s.spec.Group)+"/"+version+q.Expression, func(body []byte) (err error) {
		result.Samples, err = decode(body, string(s.spec.Group), q.Expression, at)
		result.Bytes = bytesPerByte * len(body)
		return err
	}, &result.Warnings)
	if f == nil {
		return result, nil
	}
	if ctx.Err() == nil && !f.Reason.SourceAnswered() {
		s.probes.Set()
	}
	return nil, f
}

// probe asks for the discovery of the versions of the group until one is served. A MetricsBackend refuses it, so
// that no request is passed on in a circle.
func (s *Source) probe(ctx context.Context) *query.Failure {
	var f *query.Failure
	for _, version := range versions(string(s.spec.Group)) {
		found := &metav1.APIResourceList{}
		f = s.get(ctx, "/apis/"+string(s.spec.Group)+"/"+version, func(body []byte) error { return decodeDiscovery(body, found) }, nil)
		if f == nil {
			s.setHealth(nil, version, found.APIResources)
			return nil
		}
		if f.Status == nil && f.Reason != query.ReasonBadStatus {
			break // not for the version
		}
	}
	if f.Status != nil { // no answer for a metric
		f.Reason = query.ReasonBadStatus
		if f.Status.Code == http.StatusForbidden {
			f.Reason = query.ReasonUnauthorized
		}
		f.Status = nil
	}
	if ctx.Err() == nil {
		s.setHealth(f, "", nil)
	}
	return f
}

// setHealth sets the health after a probe. The version stays while the implementation fails.
func (s *Source) setHealth(f *query.Failure, version string, resources []metav1.APIResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := v1alpha1.SourceHealth{Name: s.name, Healthy: f == nil, Since: s.health.Since}
	if f != nil {
		next.Reason, next.Message = string(f.Reason), f.Message
	}
	if next.Since.IsZero() || next.Healthy != s.health.Healthy || next.Reason != s.health.Reason {
		next.Since = metav1.NewTime(s.clock.Now())
	}
	s.health, s.version = next, cmp.Or(version, s.version)
	if f == nil {
		s.resources, s.succeeded = slices.Clone(resources[:min(len(resources), maxResources)]), s.clock.Now()
	}
}

// Resources returns what the implementation lists in its discovery. It is kept for a while after the last success: each
// change has all clients of kube-apiserver read discovery again.
func (s *Source) Resources() []metav1.APIResource {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock.Since(s.succeeded) > resourcesKept {
		return nil
	}
	return s.resources
}

// versions returns those of a group, the newest first.
func versions(group string) []string {
	var all []string
	for _, gv := range scheme.PrioritizedVersionsForGroup(group) {
		all = append(all, gv.Version)
	}
	slices.SortFunc(all, func(a, b string) int { return apimachineryversion.CompareKubeAwareVersionStrings(b, a) })
	return all
}
