// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	certutil "k8s.io/client-go/util/cert"
)

// ValidateExisting returns everything in spec.existing that the operator could not
// work with and the CRD's schema cannot express.
func ValidateExisting(existing *ExistingSpec) field.ErrorList {
	path := field.NewPath("spec", "existing")
	var errs field.ErrorList
	for _, why := range validation.IsDNS1123Label(existing.Service.Namespace) {
		errs = append(errs, field.Invalid(path.Child("service", "namespace"), existing.Service.Namespace, why))
	}
	for _, why := range validation.IsDNS1123Label(existing.Service.Name) {
		errs = append(errs, field.Invalid(path.Child("service", "name"), existing.Service.Name, why))
	}
	if existing.InsecureSkipTLSVerify {
		return errs
	}
	if _, err := certutil.ParseCertsPEM(existing.CABundle); err != nil {
		// Its value would fill the log and the status.
		errs = append(errs, field.Invalid(path.Child("caBundle"), field.OmitValueType{}, "must hold one or more certificates in PEM: "+err.Error()))
	}
	return errs
}
