// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	certutil "k8s.io/client-go/util/cert"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
)

// settings are what a running pod takes from its MetricsBackend.
type settings struct {
	kubelet kubelet.Settings
	// maxAge is the age from which points are no longer served.
	maxAge time.Duration
}

// settingsFrom reads a spec, filling in defaults; an empty spec gives those that
// are in force until a MetricsBackend was read. It checks what the CRD's
// schema checks, since a manifest on disk did not pass through it. The error
// names every field that cannot be used.
func settingsFrom(given *v1alpha1.MetricsBackendSpec) (settings, error) {
	spec := given.DeepCopy()
	if spec.ResourceMetrics == nil {
		spec.ResourceMetrics = &v1alpha1.ResourceMetricsSpec{}
	}
	v1alpha1.SetDefaults(spec)
	rm := spec.ResourceMetrics
	path := field.NewPath("spec", "resourceMetrics")
	scrape := path.Child("scrape")

	var errs field.ErrorList
	errs = append(errs, inRange(path.Child("maxAge"), rm.MaxAge, 10*time.Second, time.Hour)...)
	errs = append(errs, inRange(scrape.Child("interval"), rm.Scrape.Interval, time.Second, 10*time.Minute)...)
	errs = append(errs, inRange(scrape.Child("timeout"), rm.Scrape.Timeout, 100*time.Millisecond, time.Minute)...)
	if rm.MaxAge.Duration < rm.Scrape.Interval.Duration {
		errs = append(errs, field.Invalid(path.Child("maxAge"), rm.MaxAge.Duration.String(), "must not be shorter than scrape.interval"))
	}
	if rm.Scrape.Timeout.Duration > rm.Scrape.Interval.Duration {
		errs = append(errs, field.Invalid(scrape.Child("timeout"), rm.Scrape.Timeout.Duration.String(), "must not be longer than scrape.interval"))
	}
	if n := *rm.Scrape.MaxConcurrent; n < 1 {
		errs = append(errs, field.Invalid(scrape.Child("maxConcurrent"), n, "must be at least 1"))
	}
	bodySize, err := resource.ParseQuantity(rm.Scrape.MaxBodySize)
	if err != nil {
		errs = append(errs, field.Invalid(scrape.Child("maxBodySize"), rm.Scrape.MaxBodySize, err.Error()))
	} else if bodySize.Value() < 1 {
		errs = append(errs, field.Invalid(scrape.Child("maxBodySize"), rm.Scrape.MaxBodySize, "must be positive"))
	}
	selector := labels.Everything()
	if rm.Scrape.NodeSelector != nil {
		// A nil LabelSelector selects nothing; here it stands for all nodes.
		selector, err = metav1.LabelSelectorAsSelector(rm.Scrape.NodeSelector)
		if err != nil {
			errs = append(errs, field.Invalid(scrape.Child("nodeSelector"), metav1.FormatLabelSelector(rm.Scrape.NodeSelector), err.Error()))
		}
	}
	var port int32
	if rm.Scrape.Port != nil {
		port = *rm.Scrape.Port
		if port < 1 || port > 65535 {
			errs = append(errs, field.Invalid(scrape.Child("port"), port, "must be between 1 and 65535"))
		}
	}
	errs = append(errs, validateKubeletTLS(path.Child("kubeletTLS"), &rm.KubeletTLS)...)
	if len(errs) > 0 {
		return settings{}, errs.ToAggregate()
	}
	return settings{
		maxAge: rm.MaxAge.Duration,
		kubelet: kubelet.Settings{
			Interval:      rm.Scrape.Interval.Duration,
			Timeout:       rm.Scrape.Timeout.Duration,
			MaxConcurrent: int(*rm.Scrape.MaxConcurrent),
			MaxBodySize:   bodySize.Value(),
			AddressTypes:  rm.Scrape.AddressTypes,
			Port:          port,
			NodeSelector:  selector,
			TLS:           rm.KubeletTLS.Mode,
			CABundle:      rm.KubeletTLS.CABundle,
		},
	}, nil
}

func inRange(path *field.Path, value *metav1.Duration, least, most time.Duration) field.ErrorList {
	if value.Duration < least || value.Duration > most {
		return field.ErrorList{field.Invalid(path, value.Duration.String(), "must be between "+least.String()+" and "+most.String())}
	}
	return nil
}

func validateKubeletTLS(path *field.Path, tls *v1alpha1.KubeletTLSSpec) field.ErrorList {
	var errs field.ErrorList
	switch tls.Mode {
	case v1alpha1.KubeletTLSVerify, v1alpha1.KubeletTLSPinOnFirstUse, v1alpha1.KubeletTLSSkip:
	default:
		errs = append(errs, field.NotSupported(path.Child("mode"), tls.Mode,
			[]v1alpha1.KubeletTLSMode{v1alpha1.KubeletTLSVerify, v1alpha1.KubeletTLSPinOnFirstUse, v1alpha1.KubeletTLSSkip}))
	}
	if len(tls.CABundle) == 0 {
		return errs
	}
	if tls.Mode != v1alpha1.KubeletTLSVerify {
		errs = append(errs, field.Forbidden(path.Child("caBundle"), "has an effect with mode Verify only"))
	}
	if _, err := certutil.ParseCertsPEM(tls.CABundle); err != nil {
		errs = append(errs, field.Invalid(path.Child("caBundle"), field.OmitValueType{}, "must be certificates in PEM: "+err.Error()))
	}
	return errs
}
