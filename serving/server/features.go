// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"sync"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	baseversion "k8s.io/component-base/version"
)

// gateDefaults are the feature gates whose upstream default does not suit an
// aggregated server of metrics. --feature-gates still overrides them.
var gateDefaults = map[featuregate.Feature]bool{
	// Compression works per connection, so an event that is encoded once for
	// all watchers would be compressed once for each.
	features.WatchListCompression: false,
}

// componentGlobals returns the registry of feature gates and of the Kubernetes
// version that they are read at.
//
// The version is that of the libraries, not of this binary: upstream's default
// registry takes the latter, so that a release 0.1 would run with every gate
// off that was introduced after Kubernetes 0.1.
var componentGlobals = sync.OnceValues(func() (basecompatibility.ComponentGlobalsRegistry, error) {
	registry := basecompatibility.NewComponentGlobalsRegistry()
	kube := baseversion.DefaultKubeBinaryVersion
	version := basecompatibility.NewEffectiveVersionFromString(kube, kube, "")
	if err := registry.Register(basecompatibility.DefaultKubeComponent, version, utilfeature.DefaultMutableFeatureGate); err != nil {
		return nil, fmt.Errorf("register feature gates at Kubernetes %s: %w", kube, err)
	}
	if err := logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate); err != nil {
		return nil, fmt.Errorf("add the feature gates of logging: %w", err)
	}
	for gate, value := range gateDefaults {
		if err := utilfeature.DefaultMutableFeatureGate.OverrideDefault(gate, value); err != nil {
			return nil, fmt.Errorf("change the default of feature gate %s: %w", gate, err)
		}
	}
	return registry, nil
})
