// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	logsapi "k8s.io/component-base/logs/api/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/installation"
	"github.com/metricsbackend/metrics-backend-operator/internal/bodylimit"
)

const (
	// namespaceEnv holds the operator's namespace, set through the downward API.
	namespaceEnv = "POD_NAMESPACE"
	// servingImageEnv is the default of --serving-image, for kustomize and release tools.
	servingImageEnv = "SERVING_IMAGE"

	// gracefulShutdown limits the shutdown after SIGTERM; the pod's grace period is longer.
	gracefulShutdown = 25 * time.Second
	// leaseRetryPeriod is how often the Lease is renewed: half as often as by default, since that is
	// a good part of what an idle operator does. Within the deadline of 10 s there are still three attempts.
	leaseRetryPeriod = 4 * time.Second
	// maxDiscovery bounds a discovery document, in bytes.
	maxDiscovery = 16 << 20
)

type options struct {
	kubeconfig    string
	kubeAPIQPS    float32
	kubeAPIBurst  int
	namespaces    []string
	servingImage  string
	metricsAddr   string
	metricsSecure bool
	metricsCerts  string
	healthAddr    string
	leaderElect   bool
	logging       *logsapi.LoggingConfiguration

	// namespace is the operator's own.
	namespace string
}

func newOptions() *options {
	return &options{
		kubeAPIQPS:    50,
		kubeAPIBurst:  100,
		servingImage:  os.Getenv(servingImageEnv),
		metricsAddr:   ":8443",
		metricsSecure: true,
		healthAddr:    ":8081",
		leaderElect:   true,
		logging:       logsapi.NewLoggingConfiguration(),
		namespace:     os.Getenv(namespaceEnv),
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "File with the address of kube-apiserver and credentials. Default: those of the pod.")
	fs.Float32Var(&o.kubeAPIQPS, "kube-api-qps", o.kubeAPIQPS, "Maximum sustained rate of requests to kube-apiserver, per second.")
	fs.IntVar(&o.kubeAPIBurst, "kube-api-burst", o.kubeAPIBurst, "Maximum burst of requests to kube-apiserver.")
	fs.StringSliceVar(&o.namespaces, "namespaces", nil, ""+
		"Namespaces in which serving components may run, comma-separated; the operator needs its Role in each (config/rbac). "+
		"Default: the operator's own.")
	fs.StringVar(&o.servingImage, "serving-image", o.servingImage, ""+
		"Image of the serving component, unless a MetricsBackend names one. Default: the environment variable "+servingImageEnv+".")
	fs.StringVar(&o.metricsAddr, "metrics-bind-address", o.metricsAddr, "Address of /metrics; 0 disables it.")
	fs.BoolVar(&o.metricsSecure, "metrics-secure", o.metricsSecure, ""+
		"Serve /metrics over TLS, to clients that kube-apiserver authenticates and authorizes to get /metrics.")
	fs.StringVar(&o.metricsCerts, "metrics-cert-dir", "", "Directory with tls.crt and tls.key for /metrics. Default: a self-signed certificate.")
	fs.StringVar(&o.healthAddr, "health-probe-bind-address", o.healthAddr, "Address of /healthz and /readyz.")
	fs.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect, ""+
		"Use leader election by a Lease, so that only one of several operators is active. Disable it only for the single operator of a cluster: "+
		"operators in other namespaces take one without a Lease for one that does not run.")
	logsapi.AddFlags(o.logging, fs)
}

// complete sets defaults and validates the options.
func (o *options) complete() error {
	if o.namespace == "" {
		return fmt.Errorf("the environment variable %s is not set: it names the operator's own namespace (downward API: metadata.namespace)", namespaceEnv)
	}
	if len(o.namespaces) == 0 {
		o.namespaces = []string{o.namespace}
	}
	for _, namespace := range o.namespaces {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			return fmt.Errorf("--namespaces: %q is not a namespace: %s", namespace, strings.Join(problems, ", "))
		}
	}
	slices.Sort(o.namespaces)
	o.namespaces = slices.Compact(o.namespaces)
	if o.servingImage == "" {
		return errors.New("--serving-image (or the environment variable " + servingImageEnv + ") must name the image of the serving component")
	}
	return nil
}

func (o *options) restConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = o.kubeAPIQPS, o.kubeAPIBurst
	return config, nil
}

func (o *options) managerOptions(scheme *runtime.Scheme) ctrl.Options {
	metrics := metricsserver.Options{BindAddress: o.metricsAddr, CertDir: o.metricsCerts}
	if o.metricsSecure {
		metrics.SecureServing = true
		metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return ctrl.Options{
		Scheme: scheme,
		MapperProvider: func(config *rest.Config, client *http.Client) (meta.RESTMapper, error) {
			short := shortDiscovery{bodylimit.Transport(client.Transport, maxDiscovery)}
			return apiutil.NewDynamicRESTMapper(config, &http.Client{Transport: short, Timeout: client.Timeout})
		},
		Cache:                  metricsbackend.CacheOptions(o.namespaces),
		Metrics:                metrics,
		HealthProbeBindAddress: o.healthAddr,
		// No profiling endpoint: it would expose memory, including tokens.
		PprofBindAddress:        "0",
		LeaderElection:          o.leaderElect,
		LeaderElectionID:        installation.LeaseName,
		LeaderElectionNamespace: o.namespace,
		RetryPeriod:             new(leaseRetryPeriod),
		// The process exits right after its manager, so the next leader need not wait.
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(gracefulShutdown),
	}
}

// shortDiscovery requests discovery of one group at a time: aggregated APIs name any number of
// resources, which are all in the aggregated document.
type shortDiscovery struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s shortDiscovery) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", runtime.ContentTypeJSON)
	return s.RoundTripper.RoundTrip(r)
}
