// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/server/resourceconfig"
	serverstore "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"
	baseversion "k8s.io/component-base/version"
)

// enabledVersions returns the API versions that are served: all compiled ones except those
// that --runtime-config disables. The MetricsBackend does not matter: a reload would remove
// a version before its APIService is deleted.
func (o *Options) enabledVersions() (sets.Set[schema.GroupVersion], error) {
	compiled := compiledVersions()
	defaults := serverstore.NewResourceConfig()
	defaults.EnableVersions(compiled...)
	for key := range o.APIEnablement.RuntimeConfig {
		if strings.Count(key, "/") > 1 {
			return nil, fmt.Errorf("--runtime-config: %s names a resource; only whole versions can be taken out, as in %s=false", key, compiled[0])
		}
		if version, err := schema.ParseGroupVersion(key); err == nil && version.Group != "api" && !sets.New(compiled...).Has(version) {
			return nil, fmt.Errorf("--runtime-config: %s is not known here; the versions are %v", key, compiled)
		}
	}
	merged, err := resourceconfig.MergeAPIResourceConfigs(defaults, o.APIEnablement.RuntimeConfig, scheme)
	if err != nil {
		return nil, fmt.Errorf("--runtime-config: %w", err)
	}
	enabled := sets.New[schema.GroupVersion]()
	for _, version := range compiled {
		if merged.GroupVersionConfigs[version] {
			enabled.Insert(version)
		}
	}
	if enabled.Len() == 0 {
		return nil, fmt.Errorf("--runtime-config takes out every version of %v: nothing would be served", compiled)
	}
	return enabled, nil
}

// effectiveVersion serves the version of this binary at /version. Feature gates and API
// lifecycles follow the Kubernetes version of the libraries.
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

// version returns the version of this binary, as set by the build.
func version() string {
	return baseversion.Get().GitVersion
}

// componentGlobals returns the registry of feature gates, at the Kubernetes version of the
// libraries. Upstream's default registry uses the version of the binary: a release 0.1 would
// run without any feature that was introduced after Kubernetes 0.1.
var componentGlobals = sync.OnceValue(func() basecompatibility.ComponentGlobalsRegistry {
	registry := basecompatibility.NewComponentGlobalsRegistry()
	kube := baseversion.DefaultKubeBinaryVersion
	version := basecompatibility.NewEffectiveVersionFromString(kube, kube, "")
	utilruntime.Must(registry.Register(basecompatibility.DefaultKubeComponent, version, utilfeature.DefaultMutableFeatureGate))
	utilruntime.Must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	// Compression is per connection: an event that is encoded once for all watchers would be compressed for each of them.
	// --feature-gates overrides this default, which differs from upstream's.
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.WatchListCompression, false))
	return registry
})
