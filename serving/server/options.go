// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"
	basecompatibility "k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// defaultRatesTimeout allows for two samples of a node: two scrape intervals of 15 s and
	// two housekeeping periods of a kubelet, up to 20 s each.
	defaultRatesTimeout = 90 * time.Second
	// defaultShutdownDelay is how long a pod goes on serving after SIGTERM, until every
	// node's proxy has updated its endpoints.
	defaultShutdownDelay = 10 * time.Second
	// defaultWatchTermination limits how long watches are drained at shutdown.
	defaultWatchTermination = 10 * time.Second
	// podIPEnv holds the address of this pod, set through the downward API.
	podIPEnv = "POD_IP"
)

// Options are the command line options. The flags of the generic API server keep their
// names and meaning.
type Options struct {
	Run            *genericoptions.ServerRunOptions
	SecureServing  *genericoptions.SecureServingOptionsWithLoopback
	Authentication *genericoptions.DelegatingAuthenticationOptions
	Authorization  *genericoptions.DelegatingAuthorizationOptions
	Audit          *genericoptions.AuditOptions
	Features       *genericoptions.FeatureOptions
	CoreAPI        *genericoptions.CoreAPIOptions
	APIEnablement  *genericoptions.APIEnablementOptions
	Logging        *logsapi.LoggingConfiguration

	// Backend names the MetricsBackend to watch in the cluster.
	Backend string
	// BackendFile is a manifest of a MetricsBackend to watch instead.
	BackendFile string

	// ServiceNamespace and ServiceName name the Service in front of this pod.
	ServiceNamespace, ServiceName string
	// ServingCAFile holds the CAs of the certificates of serving pods, PEM.
	ServingCAFile string
	// KubeletCAFile holds the CAs of the certificates of kubelets, PEM.
	KubeletCAFile string
	// RatesTimeout limits how long the first readiness waits for rates.
	RatesTimeout time.Duration

	// PodIP is this pod's address; empty outside a pod.
	PodIP string
	// ScrapeAccount is the ServiceAccount, NAMESPACE/NAME, whose tokens are requested for
	// kubelets. Without it they get the credentials of --kubeconfig.
	ScrapeAccount string

	registry basecompatibility.ComponentGlobalsRegistry
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	registry := componentGlobals()
	secure := genericoptions.NewSecureServingOptions()
	// The operator sets the port. Without it, serving may run on a node, whose kubelet
	// has 10250.
	secure.BindPort = int(v1alpha1.DefaultHostNetworkPort)
	secure.Required = true
	// The aggregator multiplexes all requests and watches of the cluster into as few
	// connections as this allows. For each frame, x/net's HTTP/2 server iterates over the
	// streams of the connection: with 1,000 idle watches that was 40 % of serving's CPU. A
	// connection costs less memory than two watches.
	secure.HTTP2MaxStreamsPerConnection = 250
	// Keep a self-signed certificate in memory: the pod's file system is read-only.
	secure.ServerCert.CertDirectory = ""

	run := genericoptions.NewServerRunOptionsForComponent(basecompatibility.DefaultKubeComponent, registry)
	run.ShutdownDelayDuration = defaultShutdownDelay
	run.ShutdownWatchTerminationGracePeriod = defaultWatchTermination

	features := genericoptions.NewFeatureOptions()
	// kube-apiserver has already queued each request fairly; a second queue would need its
	// own informers and permissions.
	features.EnablePriorityAndFairness = false

	return &Options{
		Run:            run,
		SecureServing:  secure.WithLoopback(),
		Authentication: genericoptions.NewDelegatingAuthenticationOptions(),
		Authorization:  genericoptions.NewDelegatingAuthorizationOptions(),
		Audit:          genericoptions.NewAuditOptions(),
		Features:       features,
		CoreAPI:        genericoptions.NewCoreAPIOptions(),
		APIEnablement:  genericoptions.NewAPIEnablementOptions(),
		Logging:        logsapi.NewLoggingConfiguration(),
		RatesTimeout:   defaultRatesTimeout,
		PodIP:          os.Getenv(podIPEnv),
		ScrapeAccount:  os.Getenv(v1alpha1.ScrapeAccountVariable),
		registry:       registry,
	}
}

// Flags returns the flags, grouped for --help.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets
	o.addFlags(sets.FlagSet("metrics backend"))
	o.CoreAPI.AddFlags(sets.FlagSet("metrics backend"))
	o.Run.AddUniversalFlags(sets.FlagSet("generic"))
	o.SecureServing.AddFlags(sets.FlagSet("secure serving"))
	o.Authentication.AddFlags(sets.FlagSet("authentication"))
	o.Authorization.AddFlags(sets.FlagSet("authorization"))
	o.Audit.AddFlags(sets.FlagSet("auditing"))
	o.APIEnablement.AddFlags(sets.FlagSet("API enablement"))
	o.addFeatureFlags(sets.FlagSet("features"))
	logsapi.AddFlags(o.Logging, sets.FlagSet("logs"))
	return sets
}

func (o *Options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Backend, "backend", o.Backend, ""+
		"Name of the MetricsBackend whose settings are followed, without a restart. While it, or its CRD, does not exist, "+
		"the last settings stay in force, or the defaults. Excludes --backend-file.")
	fs.StringVar(&o.BackendFile, "backend-file", o.BackendFile, ""+
		"File with the manifest of a MetricsBackend whose settings are followed instead of one in the cluster. Excludes --backend.")
	fs.StringVar(&o.ServiceNamespace, "service-namespace", o.ServiceNamespace,
		"Namespace of the Service in front of this pod.")
	fs.StringVar(&o.ServiceName, "service-name", o.ServiceName, ""+
		"Name of the Service in front of this pod. With it, the pod first becomes ready only when it serves every API version that is "+
		"registered for the Service, or when no ready pod of the Service serves that version either.")
	fs.StringVar(&o.ServingCAFile, "serving-ca-file", o.ServingCAFile, ""+
		"File with the authorities, PEM, with which the certificates of other pods of the Service are verified. "+
		"Default: the system's authorities.")
	fs.StringVar(&o.KubeletCAFile, "kubelet-ca-file", o.KubeletCAFile, ""+
		"File with the authorities, PEM, with which kubelets are verified where the MetricsBackend does not name others. "+
		"Default: those with which kube-apiserver is verified.")
	fs.DurationVar(&o.RatesTimeout, "rates-timeout", o.RatesTimeout, ""+
		"How long the first readiness waits for rates, which take two samples of each reachable node, before it goes on without.")
}

// addFeatureFlags leaves out --enable-priority-and-fairness, see NewOptions.
func (o *Options) addFeatureFlags(fs *pflag.FlagSet) {
	var all pflag.FlagSet
	o.Features.AddFlags(&all)
	all.VisitAll(func(f *pflag.Flag) {
		if f.Name != "enable-priority-and-fairness" {
			fs.AddFlag(f)
		}
	})
}

// Validate returns all that is wrong with the options, or nil.
func (o *Options) Validate() error {
	errs := slices.Concat(o.Run.Validate(), o.SecureServing.Validate(), o.Authentication.Validate(), o.Authorization.Validate(),
		o.Audit.Validate(), o.Features.Validate(), o.CoreAPI.Validate())
	if o.Backend != "" && o.BackendFile != "" {
		errs = append(errs, errors.New("--backend and --backend-file exclude each other: settings come from the cluster or from a file"))
	}
	if (o.ServiceName == "") != (o.ServiceNamespace == "") {
		errs = append(errs, errors.New("--service-name and --service-namespace must be given together"))
	}
	if _, err := o.scrapeAccount(); err != nil {
		errs = append(errs, err)
	}
	if o.RatesTimeout < 0 {
		errs = append(errs, fmt.Errorf("--rates-timeout must not be negative, but is %s", o.RatesTimeout))
	}
	if _, err := o.enabledVersions(); err != nil {
		errs = append(errs, err)
	}
	return utilerrors.NewAggregate(errs)
}
