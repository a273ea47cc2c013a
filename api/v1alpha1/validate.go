// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	certutil "k8s.io/client-go/util/cert"
)

// Limits, as in the CRD's schema.
const (
	// MaxSources is the maximum number of spec.sources.
	MaxSources = 32
	// MinInterval and MaxInterval limit the time between two evaluations.
	MinInterval = time.Second
	MaxInterval = time.Hour
)

// credentialHeaders are headers whose value is always a credential, in canonical form, as in the CRD's schema.
var credentialHeaders = []string{"Api-Key", "Apikey", "Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key", "X-Auth-Token"}

// IsCredentialHeader reports whether a header's value must come from a Secret.
func IsCredentialHeader(name string) bool {
	return slices.Contains(credentialHeaders, http.CanonicalHeaderKey(name))
}

// Validate returns the errors of a spec that the CRD's schema cannot find: in PEM and in labels.
func Validate(spec *MetricsBackendSpec) field.ErrorList {
	var errs field.ErrorList
	if rm, path := spec.ResourceMetrics, field.NewPath("spec", "resourceMetrics"); rm != nil {
		errs = metav1validation.ValidateLabelSelector(rm.Scrape.NodeSelector, metav1validation.LabelSelectorValidationOptions{}, path.Child("scrape", "nodeSelector"))
		errs = append(errs, validateCABundle(path.Child("kubeletTLS", "caBundle"), rm.KubeletTLS.CABundle)...)
	}
	if spec.Existing != nil {
		errs = append(errs, validateCABundle(field.NewPath("spec", "existing", "caBundle"), spec.Existing.CABundle)...)
	}
	return errs
}

// validateCABundle returns errors without the bundle, which would fill the log and the
// status.
func validateCABundle(path *field.Path, bundle []byte) field.ErrorList {
	if len(bundle) == 0 {
		return nil
	}
	if _, err := certutil.ParseCertsPEM(bundle); err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "must hold one or more certificates in PEM: "+err.Error())}
	}
	return nil
}

// Duration returns the duration, or fallback if it is empty. The error says which values
// are valid; it belongs to the rule, not to the whole spec.
func (i RuleInterval) Duration(fallback time.Duration) (time.Duration, error) {
	if i == "" {
		return fallback, nil
	}
	interval, err := time.ParseDuration(string(i))
	if err != nil || interval < MinInterval || interval > MaxInterval {
		return 0, fmt.Errorf("%q must be a duration such as 30s, between %s and %s", i, MinInterval, MaxInterval)
	}
	return interval, nil
}

// Validate returns an error if the policy is invalid. Empty means InvalidValuesReject.
func (p InvalidValuesPolicy) Validate() error {
	if p == "" || p == InvalidValuesReject || p == InvalidValuesOmit {
		return nil
	}
	return fmt.Errorf("invalidValuesPolicy is %q: it must be Reject or Omit", p)
}

// Known reports whether the policy is valid. Empty means DuplicatesReject.
func (p DuplicatesPolicy) Known() bool {
	switch p {
	case "", DuplicatesReject, DuplicatesSum, DuplicatesAverage, DuplicatesMinimum, DuplicatesMaximum:
		return true
	}
	return false
}
