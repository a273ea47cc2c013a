// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package connection connects the plugin to the cluster of a kubeconfig.
package connection

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/bodylimit"
)

// requestTimeout bounds a single request, unless --request-timeout does.
const requestTimeout = 15 * time.Second

// maxBody bounds the body of a response to Get or Stream: 200,000 pods with twenty labels each take
// 180 MB.
const maxBody = 512 << 20

// Cluster is a connection to the cluster of a kubeconfig.
type Cluster struct {
	// Objects reads and watches objects.
	Objects client.WithWatch
	// Host is kube-apiserver's address, for messages.
	Host string
	// Timeout bounds a single request.
	Timeout time.Duration
	// Config is for clients of other packages. It has no timeout, and updates Now.
	Config *rest.Config

	raw rest.Interface
	serverClock
}

// Namespace returns the namespace of the kubeconfig's context, or of --namespace.
func Namespace(getter genericclioptions.RESTClientGetter) (string, error) {
	namespace, _, err := getter.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("read the namespace from the kubeconfig: %w", err)
	}
	return namespace, nil
}

// Open connects with the kubeconfig and flags of getter. It makes no request.
func Open(getter genericclioptions.RESTClientGetter, warnings io.Writer) (*Cluster, error) {
	config, err := getter.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return ForConfig(config, warnings, clock.RealClock{})
}

// ForConfig connects to the cluster of config. It makes no request.
func ForConfig(config *rest.Config, warnings io.Writer, clock clock.PassiveClock) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	// Serving leaves requests with this user agent out of its consumers.
	config.UserAgent = fmt.Sprintf("kubectl-metrics-backend/%s (%s/%s)", Version(), runtime.GOOS, runtime.GOARCH)
	timeout := cmp.Or(config.Timeout, requestTimeout)
	config.Timeout = 0 // it would end watches, too
	config.WarningHandler = rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})
	c := &Cluster{Host: config.Host, Timeout: timeout, serverClock: serverClock{clock: clock}}
	config.Wrap(c.observe)
	c.Config = rest.CopyConfig(config)

	kinds, mapper := schemeAndMapper()
	var err error
	if c.Objects, err = client.NewWithWatch(config, client.Options{Scheme: kinds, Mapper: mapper}); err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	if c.raw, err = rest.UnversionedRESTClientFor(bodylimit.Config(config, maxBody)); err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	return c, nil
}

// schemeAndMapper returns the kinds that the plugin reads, with a static mapper: discovery may be broken.
func schemeAndMapper() (*apiruntime.Scheme, meta.RESTMapper) {
	kinds := apiruntime.NewScheme()
	builder := apiruntime.NewSchemeBuilder(corev1.AddToScheme, autoscalingv2.AddToScheme, apiregistrationv1.AddToScheme, v1alpha1.AddToScheme)
	utilruntime.Must(builder.AddToScheme(kinds))
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), meta.RESTScopeNamespace)
	mapper.Add(apiregistrationv1.SchemeGroupVersion.WithKind("APIService"), meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("MetricsBackend"), meta.RESTScopeRoot)
	return kinds, mapper
}

// Get returns the body of GET path, which may have a query. Its errors are those
// of k8s.io/apimachinery/pkg/api/errors, with the path.
func (c *Cluster) Get(ctx context.Context, path, accept string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	result := c.raw.Get().RequestURI(path).SetHeader("Accept", accept).Do(ctx)
	// Unlike Raw's, this error has the message of the Status.
	if err := result.Error(); err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, withoutURL(err))
	}
	return result.Raw()
}

// GetJSON decodes the response of GET path into a value.
func (c *Cluster) GetJSON(ctx context.Context, path, accept string, into any) error {
	body, err := c.Get(ctx, path, accept)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("GET %s: decode the answer: %w", path, err)
	}
	return nil
}

// Stream is Get for large bodies. The caller closes the body.
func (c *Cluster) Stream(ctx context.Context, path string) (io.ReadCloser, error) {
	body, err := c.raw.Get().RequestURI(path).SetHeader("Accept", "*/*").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, withoutURL(err))
	}
	return body, nil
}

// withoutURL removes the URL, which the caller adds.
func withoutURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// pageSize is the number of objects of a page.
const pageSize = 500

// Each calls do with each page of a list of objects.
func (c *Cluster) Each(ctx context.Context, list client.ObjectList, do func(), opts ...client.ListOption) error {
	for {
		page, cancel := context.WithTimeout(ctx, c.Timeout)
		err := c.Objects.List(page, list, append(slices.Clone(opts), client.Limit(pageSize), client.Continue(list.GetContinue()))...)
		cancel()
		if err != nil {
			return err
		}
		do()
		if list.GetContinue() == "" {
			return nil
		}
	}
}

// skewTolerated is the precision of a Date header, which is in whole seconds and as old as
// the response.
const skewTolerated = 3 * time.Second

// serverClock is kube-apiserver's clock, according to its responses.
type serverClock struct {
	clock clock.PassiveClock
	// offset is added to the local time, in nanoseconds.
	offset atomic.Int64
}

// Now returns kube-apiserver's time, so that a wrong local clock does not make samples old.
func (s *serverClock) Now() time.Time { return s.clock.Now().Add(time.Duration(s.offset.Load())) }

// observe reads the Date header of each response.
func (s *serverClock) observe(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		if there, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			offset := there.Sub(s.clock.Now())
			if offset.Abs() < skewTolerated {
				offset = 0
			}
			s.offset.Store(int64(offset))
		}
		return response, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
