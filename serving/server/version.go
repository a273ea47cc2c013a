// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strconv"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	basecompatibility "k8s.io/component-base/compatibility"
	baseversion "k8s.io/component-base/version"
)

// effectiveVersion reports this binary's version at /version, while feature
// gates and API lifecycles follow the Kubernetes version of the libraries.
type effectiveVersion struct {
	basecompatibility.EffectiveVersion
}

// Info implements EffectiveVersion.
func (v effectiveVersion) Info() *apimachineryversion.Info {
	info := v.EffectiveVersion.Info()
	info.Major, info.Minor = "", ""
	if parsed, err := utilversion.ParseSemantic(info.GitVersion); err == nil {
		info.Major = strconv.FormatUint(uint64(parsed.Major()), 10)
		info.Minor = strconv.FormatUint(uint64(parsed.Minor()), 10)
	}
	return info
}

// version is this binary's version as the build stamped it.
func version() string {
	return baseversion.Get().GitVersion
}
