// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults of the spec. They repeat the kubebuilder:default markers, for an object that was stored with a CRD of another version.
const (
	DefaultReplicas              int32 = 2
	DefaultLogVerbosity          int32 = 2
	DefaultPriorityClassName           = "system-cluster-critical"
	DefaultScrapeInterval              = 15 * time.Second
	DefaultScrapeTimeout               = 10 * time.Second
	DefaultMaxConcurrent         int32 = 64
	DefaultScrapeMaxResponseSize       = "16Mi"
	DefaultMaxSampleAge                = 90 * time.Second
	DefaultKubeletPort           int32 = 10250
	DefaultExistingPort          int32 = 443

	DefaultMaxWatches               int32 = 10000
	DefaultMaxWatchesPerUser        int32 = 1000
	DefaultMaxOpensPerSecondPerUser int32 = 100
	DefaultBookmarkInterval               = time.Minute
	DefaultMaxWatchDuration               = time.Hour
)

// DefaultAddressTypes is the default order of preference for a node's addresses.
func DefaultAddressTypes() []corev1.NodeAddressType {
	return []corev1.NodeAddressType{
		corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName,
		corev1.NodeInternalDNS, corev1.NodeExternalDNS,
	}
}

// SetDefaults sets the defaults that the CRD's schema would set, and serving.port.
func SetDefaults(spec *MetricsBackendSpec) {
	setDefault(&spec.Serving.Replicas, DefaultReplicas)
	setDefault(&spec.Serving.Port, DefaultServingPort(spec.Serving.HostNetwork))
	setDefault(&spec.Serving.LogVerbosity, DefaultLogVerbosity)
	if spec.Serving.PriorityClassName == "" {
		spec.Serving.PriorityClassName = DefaultPriorityClassName
	}
	if spec.Serving.ImagePullPolicy == "" {
		spec.Serving.ImagePullPolicy = corev1.PullIfNotPresent
	}
	if spec.Serving.NetworkPolicy == "" {
		spec.Serving.NetworkPolicy = NetworkPolicyNone
	}
	if spec.Existing != nil {
		setDefault(&spec.Existing.Service.Port, DefaultExistingPort)
	}
	setCertificatesDefaults(&spec.Serving.Certificates)
	if spec.ResourceMetrics != nil {
		setResourceMetricsDefaults(spec.ResourceMetrics)
	}
	if spec.CustomMetrics != nil {
		setCustomMetricsDefaults(spec.CustomMetrics)
	}
	if spec.ExternalMetrics != nil {
		setExternalMetricsDefaults(spec.ExternalMetrics)
	}
	for i := range spec.Sources {
		setSourceDefaults(&spec.Sources[i])
	}
	setWatchDefaults(&spec.Watch)
}

func setCertificatesDefaults(certificates *CertificatesSpec) {
	if certificates.Mode == "" {
		certificates.Mode = CertificatesManaged
	}
	if manager := certificates.CertManager; manager != nil {
		if manager.IssuerRef.Kind == "" {
			manager.IssuerRef.Kind = "Issuer"
		}
		if manager.IssuerRef.Group == "" {
			manager.IssuerRef.Group = "cert-manager.io"
		}
	}
}

func setResourceMetricsDefaults(rm *ResourceMetricsSpec) {
	if len(rm.Versions) == 0 {
		rm.Versions = []ResourceMetricsVersion{ResourceMetricsV1, ResourceMetricsV1beta1}
	}
	rm.Adoption = cmp.Or(rm.Adoption, AdoptionRefuse)
	setDefault(&rm.Scrape.Interval, metav1.Duration{Duration: DefaultScrapeInterval})
	setDefault(&rm.Scrape.Timeout, metav1.Duration{Duration: DefaultScrapeTimeout})
	setDefault(&rm.Scrape.MaxConcurrent, DefaultMaxConcurrent)
	setDefault(&rm.MaxSampleAge, metav1.Duration{Duration: DefaultMaxSampleAge})
	if rm.Scrape.MaxResponseSize == "" {
		rm.Scrape.MaxResponseSize = DefaultScrapeMaxResponseSize
	}
	if len(rm.Scrape.AddressTypes) == 0 {
		rm.Scrape.AddressTypes = DefaultAddressTypes()
	}
	if rm.KubeletTLS.Mode == "" {
		rm.KubeletTLS.Mode = KubeletTLSVerifyOrPin
	}
}

func setWatchDefaults(watch *WatchSpec) {
	if watch.Mode == "" {
		watch.Mode = WatchEnabled
	}
	setDefault(&watch.MaxWatches, DefaultMaxWatches)
	setDefault(&watch.MaxWatchesPerUser, DefaultMaxWatchesPerUser)
	setDefault(&watch.MaxOpensPerSecondPerUser, DefaultMaxOpensPerSecondPerUser)
	setDefault(&watch.BookmarkInterval, metav1.Duration{Duration: DefaultBookmarkInterval})
	setDefault(&watch.MaxDuration, metav1.Duration{Duration: DefaultMaxWatchDuration})
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// Defaults of sources, as in the kubebuilder:default markers.
const (
	DefaultSourceInterval  = 15 * time.Second
	DefaultSourceTimeout   = 10 * time.Second
	DefaultSeriesInterval  = time.Minute
	DefaultSeriesLookback  = 5 * time.Minute
	DefaultMaxResponseSize = "32Mi"
	DefaultNamespaceLabel  = "namespace"
)

func setSourceDefaults(source *SourceSpec) {
	if m := source.MetricsAPI; m != nil {
		setDefault(&m.Service.Port, DefaultExistingPort)
	}
	p := source.Prometheus
	if p == nil {
		return
	}
	setDefault(&p.Interval, metav1.Duration{Duration: DefaultSourceInterval})
	setDefault(&p.Timeout, metav1.Duration{Duration: DefaultSourceTimeout})
	setDefault(&p.SeriesInterval, metav1.Duration{Duration: DefaultSeriesInterval})
	setDefault(&p.SeriesLookback, metav1.Duration{Duration: DefaultSeriesLookback})
	if p.MaxResponseSize == "" {
		p.MaxResponseSize = DefaultMaxResponseSize
	}
	if p.PartialResponsePolicy == "" {
		p.PartialResponsePolicy = PartialResponseReject
	}
	if p.Tenancy.NamespaceLabel == "" {
		p.Tenancy.NamespaceLabel = DefaultNamespaceLabel
	}
}

func setCustomMetricsDefaults(spec *CustomMetricsSpec) {
	if len(spec.Versions) == 0 {
		spec.Versions = []CustomMetricsVersion{CustomMetricsV1beta2, CustomMetricsV1beta1}
	}
	spec.Adoption = cmp.Or(spec.Adoption, AdoptionRefuse)
}

func setExternalMetricsDefaults(spec *ExternalMetricsSpec) {
	if len(spec.Versions) == 0 {
		spec.Versions = []ExternalMetricsVersion{ExternalMetricsV1beta1}
	}
	spec.Adoption = cmp.Or(spec.Adoption, AdoptionRefuse)
}
