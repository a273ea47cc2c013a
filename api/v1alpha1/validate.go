// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	certutil "k8s.io/client-go/util/cert"
)

// Limits, as in the CRD's schema.
const (
	// MaxAgeMargin is the minimum difference between maxAge and scrape.interval. A
	// kubelet's sample is up to 20 seconds old when it is scraped, and the scrape takes up
	// to scrape.timeout, 10 seconds by default.
	MaxAgeMargin = 30 * time.Second
	// MaxMaxBodySize is the largest scrape.maxBodySize.
	MaxMaxBodySize = "256Mi"
	// MaxMaxConcurrent is the largest scrape.maxConcurrent.
	MaxMaxConcurrent int32 = 1000
	// MaxMaxConnections is the largest watch.maxConnections and maxConnectionsPerUser.
	MaxMaxConnections int32 = 100000
	// MaxMaxOpensPerSecondPerUser is the largest watch.maxOpensPerSecondPerUser.
	MaxMaxOpensPerSecondPerUser int32 = 10000
)

// bodySize is the pattern of scrape.maxBodySize.
var bodySize = regexp.MustCompile(`^[1-9][0-9]{0,8}(Ki|Mi)?$`)

// Validate returns the errors of a spec for a running serving pod: violations of the
// CRD's schema, which a manifest on disk did not pass through, and of rules that a schema
// cannot express, such as for PEM bundles and labels. Call SetDefaults first.
func Validate(spec *MetricsBackendSpec) field.ErrorList {
	errs := validateWatch(field.NewPath("spec", "watch"), &spec.Watch)
	errs = append(errs, validateCustomMetrics(field.NewPath("spec", "customMetrics"), spec)...)
	errs = append(errs, validateExternalMetrics(field.NewPath("spec", "externalMetrics"), spec)...)
	errs = append(errs, validateSources(field.NewPath("spec", "sources"), spec.Sources)...)
	if spec.ResourceMetrics == nil {
		return errs
	}
	rm, path := spec.ResourceMetrics, field.NewPath("spec", "resourceMetrics")
	errs = append(errs, oneOf(path.Child("versions"), rm.Versions, ResourceMetricsV1, ResourceMetricsV1beta1)...)
	errs = append(errs, unique(path.Child("versions"), rm.Versions)...)
	if rm.Rules != nil {
		errs = append(errs, needsSource(path.Child("rules"), spec)...)
	}
	errs = append(errs, validateMaxAge(path.Child("maxAge"), rm)...)
	errs = append(errs, validateScrape(path.Child("scrape"), &rm.Scrape)...)
	return append(errs, validateKubeletTLS(path.Child("kubeletTLS"), &rm.KubeletTLS)...)
}

func validateMaxAge(path *field.Path, rm *ResourceMetricsSpec) field.ErrorList {
	least, age := rm.Scrape.Interval.Duration+MaxAgeMargin, rm.MaxAge.Duration
	switch {
	case age > time.Hour:
		return field.ErrorList{field.Invalid(path, age.String(), "must be at most 1h")}
	case age < least:
		return field.ErrorList{field.Invalid(path, age.String(), fmt.Sprintf(
			"must be at least %s longer than scrape.interval (a kubelet's samples may be 20s old when they are read): raise maxAge, whose default is %s, to %s or more",
			MaxAgeMargin, DefaultMaxAge, least))}
	}
	return nil
}

func validateScrape(path *field.Path, scrape *ScrapeSpec) field.ErrorList {
	errs := inRange(path.Child("interval"), scrape.Interval, time.Second, 10*time.Minute)
	errs = append(errs, inRange(path.Child("timeout"), scrape.Timeout, 100*time.Millisecond, time.Minute)...)
	if scrape.Timeout.Duration > scrape.Interval.Duration {
		errs = append(errs, field.Invalid(path.Child("timeout"), scrape.Timeout.Duration.String(), "must not be longer than scrape.interval"))
	}
	if n := *scrape.MaxConcurrent; n < 1 || n > MaxMaxConcurrent {
		errs = append(errs, field.Invalid(path.Child("maxConcurrent"), n, fmt.Sprintf("must be between 1 and %d", MaxMaxConcurrent)))
	}
	if _, err := scrape.MaxBodyBytes(); err != nil {
		errs = append(errs, field.Invalid(path.Child("maxBodySize"), scrape.MaxBodySize, err.Error()))
	}
	errs = append(errs, oneOf(path.Child("addressTypes"), scrape.AddressTypes, DefaultAddressTypes()...)...)
	errs = append(errs, atMost(path.Child("addressTypes"), len(scrape.AddressTypes), len(DefaultAddressTypes()))...)
	if port := scrape.Port; port != nil && (*port < 1 || *port > 65535) {
		errs = append(errs, field.Invalid(path.Child("port"), *port, "must be between 1 and 65535"))
	}
	return append(errs, metav1validation.ValidateLabelSelector(scrape.NodeSelector, metav1validation.LabelSelectorValidationOptions{}, path.Child("nodeSelector"))...)
}

// MaxBodyBytes returns maxBodySize in bytes, or an error that says which values are valid.
func (s *ScrapeSpec) MaxBodyBytes() (int64, error) {
	most := resource.MustParse(MaxMaxBodySize)
	if !bodySize.MatchString(s.MaxBodySize) {
		return 0, fmt.Errorf("must be a positive number of bytes, with Ki or Mi for a larger unit, and at most %s", MaxMaxBodySize)
	}
	size, err := resource.ParseQuantity(s.MaxBodySize)
	if err != nil {
		return 0, err
	}
	if size.Cmp(most) > 0 {
		return 0, fmt.Errorf("must be at most %s", MaxMaxBodySize)
	}
	return size.Value(), nil
}

func validateKubeletTLS(path *field.Path, tls *KubeletTLSSpec) field.ErrorList {
	errs := oneOf(path.Child("mode"), []KubeletTLSMode{tls.Mode}, KubeletTLSVerifyOrPin, KubeletTLSVerify, KubeletTLSPinOnFirstUse, KubeletTLSSkip)
	if len(tls.CABundle) == 0 {
		return errs
	}
	if tls.Mode != KubeletTLSVerify && tls.Mode != KubeletTLSVerifyOrPin {
		errs = append(errs, field.Forbidden(path.Child("caBundle"), "has an effect with modes Verify and VerifyOrPin only: remove it or set mode: Verify"))
	}
	return append(errs, validateCABundle(path.Child("caBundle"), tls.CABundle)...)
}

// validateCABundle returns errors without the bundle, which would fill the log and the
// status.
func validateCABundle(path *field.Path, bundle []byte) field.ErrorList {
	if _, err := certutil.ParseCertsPEM(bundle); err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "must hold one or more certificates in PEM: "+err.Error())}
	}
	return nil
}

func validateWatch(path *field.Path, watch *WatchSpec) field.ErrorList {
	errs := oneOf(path.Child("mode"), []WatchMode{watch.Mode}, WatchEnabled, WatchDisabled)
	for _, limit := range []struct {
		name  string
		value *int32
		most  int32
	}{
		{"maxConnections", watch.MaxConnections, MaxMaxConnections},
		{"maxConnectionsPerUser", watch.MaxConnectionsPerUser, MaxMaxConnections},
		{"maxOpensPerSecondPerUser", watch.MaxOpensPerSecondPerUser, MaxMaxOpensPerSecondPerUser},
	} {
		if n := *limit.value; n < 1 || n > limit.most {
			errs = append(errs, field.Invalid(path.Child(limit.name), n, fmt.Sprintf("must be between 1 and %d", limit.most)))
		}
	}
	errs = append(errs, inRange(path.Child("bookmarkInterval"), watch.BookmarkInterval, 5*time.Second, 10*time.Minute)...)
	return append(errs, inRange(path.Child("maxAge"), watch.MaxAge, time.Minute, 24*time.Hour)...)
}

func inRange(path *field.Path, value *metav1.Duration, least, most time.Duration) field.ErrorList {
	if value.Duration < least || value.Duration > most {
		return field.ErrorList{field.Invalid(path, value.Duration.String(), "must be between "+least.String()+" and "+most.String())}
	}
	return nil
}

func validateName(path *field.Path, name string, validate func(string) []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range validate(name) {
		errs = append(errs, field.Invalid(path, name, problem))
	}
	return errs
}

func oneOf[T ~string](path *field.Path, values []T, known ...T) field.ErrorList {
	var errs field.ErrorList
	for _, value := range values {
		if !slices.Contains(known, value) {
			errs = append(errs, field.NotSupported(path, value, known))
		}
	}
	return errs
}

func unique[T ~string](path *field.Path, values []T) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[T]()
	for i, value := range values {
		if seen.Has(value) {
			errs = append(errs, field.Duplicate(path.Index(i), value))
		}
		seen.Insert(value)
	}
	return errs
}

func validateService(path *field.Path, service *ExistingService) field.ErrorList {
	errs := validateName(path.Child("namespace"), service.Namespace, validation.IsDNS1123Label)
	return append(errs, validateName(path.Child("name"), service.Name, validation.IsDNS1123Label)...)
}

// ValidateExisting returns the errors in spec.existing that the CRD's schema cannot
// express.
func ValidateExisting(existing *ExistingSpec) field.ErrorList {
	path := field.NewPath("spec", "existing")
	errs := validateService(path.Child("service"), &existing.Service)
	if existing.InsecureSkipTLSVerify {
		return errs
	}
	return append(errs, validateCABundle(path.Child("caBundle"), existing.CABundle)...)
}
