// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/server/resourceconfig"
	serverstore "k8s.io/apiserver/pkg/server/storage"
)

// enabledVersions are the versions that are served: all that are compiled in but
// those that --runtime-config takes out. Settings of a MetricsBackend have no
// say, or a reload would drop a version before its APIService is gone.
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
