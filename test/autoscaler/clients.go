// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"
)

// clients are the stock ones of kube-controller-manager.
type clients struct {
	core           kubernetes.Interface
	mapper         meta.ResettableRESTMapper
	scale          scale.ScalesGetter
	resource       resourceclient.PodMetricsesGetter
	custom         custom_metrics.CustomMetricsClient
	customVersions custom_metrics.AvailableAPIsGetter
	external       external_metrics.ExternalMetricsClient
}

func newClients(config *rest.Config) (clients, error) {
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("making the autoscaler's client of the API: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(core.Discovery()))
	scales, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc,
		scale.NewDiscoveryScaleKindResolver(core.Discovery()))
	if err != nil {
		return clients{}, fmt.Errorf("making the autoscaler's client of scales: %w", err)
	}
	resource, err := resourceclient.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("making the autoscaler's client of resource metrics: %w", err)
	}
	external, err := external_metrics.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("making the autoscaler's client of external metrics: %w", err)
	}
	versions := custom_metrics.NewAvailableAPIsGetter(core.Discovery())
	return clients{
		core: core, mapper: mapper, scale: scales, resource: resource, external: external,
		custom: custom_metrics.NewForConfig(config, mapper, versions), customVersions: versions,
	}, nil
}
