// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/health"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync/hook"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/tracing"
	"github.com/argoproj/argo-cd/v3/common"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo"
	argodiff "github.com/argoproj/argo-cd/v3/util/argo/diff"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	"github.com/argoproj/argo-cd/v3/util/lua"
	"github.com/argoproj/argo-cd/v3/util/settings"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// argocdNamespace is where Argo CD's settings are.
const argocdNamespace = "argocd"

// application is an Application with Argo CD's view of its cluster.
type application struct {
	options
	name      string
	objects   []*unstructured.Unstructured
	config    *rest.Config
	kubectl   *kube.KubectlCmd
	cluster   cache.ClusterCache
	overrides map[string]v1alpha1.ResourceOverride
	compared  settings.ArgoCDDiffOptions
	tracking  string
}

// resource is Argo CD's answer about one object.
type resource struct {
	// Key is GROUP/KIND/NAMESPACE/NAME.
	Key string `json:"key"`
	// Sync is Synced or OutOfSync.
	Sync string `json:"sync"`
	// Health is empty for kinds without a health check.
	Health        string `json:"health,omitempty"`
	HealthMessage string `json:"healthMessage,omitempty"`
	// Live and Predicted are the normalized object and what a sync would make of it, if they differ.
	Live      json.RawMessage `json:"live,omitempty"`
	Predicted json.RawMessage `json:"predicted,omitempty"`
}

func newApplication(ctx context.Context, config *rest.Config, name string, objects []*unstructured.Unstructured, o options) (*application, error) {
	a := &application{options: o, name: name, config: config}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	manager := settings.NewSettingsManager(ctx, client, argocdNamespace)
	if a.overrides, err = manager.GetResourceOverrides(); err != nil {
		return nil, err
	}
	if a.compared, err = manager.GetResourceCompareOptions(); err != nil {
		return nil, err
	}
	if a.tracking, err = manager.GetTrackingMethod(); err != nil {
		return nil, err
	}
	filter, err := manager.GetResourcesFilter()
	if err != nil {
		return nil, err
	}
	tracking := argo.NewResourceTracking()
	for _, object := range objects {
		err := tracking.SetAppInstance(object, common.LabelKeyAppInstance, name, o.namespace, v1alpha1.TrackingMethod(a.tracking), "")
		if err != nil {
			return nil, fmt.Errorf("track %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	a.objects = objects
	a.kubectl = &kube.KubectlCmd{Log: klog.Background(), Tracer: tracing.NopTracer{}}
	a.cluster = cache.NewClusterCache(config,
		cache.SetKubectl(a.kubectl),
		cache.SetSettings(cache.Settings{ResourceHealthOverride: a.health(), ResourcesFilter: filter}),
		// The information about an object is the Application that it is tracked by; manifests of these are cached.
		cache.SetPopulateResourceInfoHandler(func(object *unstructured.Unstructured, _ bool) (any, bool) {
			owner := tracking.GetAppName(object, common.LabelKeyAppInstance, v1alpha1.TrackingMethod(a.tracking), "")
			return owner, owner != ""
		}))
	if err := a.cluster.EnsureSynced(); err != nil {
		return nil, fmt.Errorf("read the cluster: %w", err)
	}
	return a, nil
}

func (a *application) health() health.HealthOverride { return lua.ResourceHealthOverrides(a.overrides) }

// reconciled pairs the objects in Git with those in the cluster, and with those that the Application still has there.
func (a *application) reconciled() (sync.ReconciliationResult, error) {
	live, err := a.cluster.GetManagedLiveObjs(a.objects, func(r *cache.Resource) bool { return r.Info == any(a.name) })
	if err != nil {
		return sync.ReconciliationResult{}, fmt.Errorf("read live objects: %w", err)
	}
	return sync.Reconcile(a.objects, live, a.namespace, a.cluster), nil
}

// compare returns the status of each object, as in status.resources of an Application.
func (a *application) compare() ([]resource, error) {
	pairs, err := a.reconciled()
	if err != nil {
		return nil, err
	}
	builder := argodiff.NewDiffConfigBuilder().
		WithDiffSettings(nil, a.overrides, a.compared.IgnoreAggregatedRoles, normalizers.IgnoreNormalizerOpts{}).
		WithTracking(common.LabelKeyAppInstance, a.tracking).
		WithNoCache().
		WithGVKParser(a.cluster.GetGVKParser()).
		WithManager(common.ArgoCDSSAManager).
		WithServerSideDiff(a.serverSideDiff).
		WithStructuredMergeDiff(a.serverSideApply)
	if a.serverSideDiff {
		applier, cleanup, err := a.kubectl.ManageServerSideDiffDryRuns(a.config)
		if err != nil {
			return nil, err
		}
		defer cleanup()
		builder.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(applier))
	}
	config, err := builder.Build()
	if err != nil {
		return nil, err
	}
	differences, err := argodiff.StateDiffs(pairs.Live, pairs.Target, config)
	if err != nil {
		return nil, fmt.Errorf("compare with the live objects: %w", err)
	}
	var resources []resource
	for i, difference := range differences.Diffs {
		// What is left of hooks has no status.
		if live := pairs.Live[i]; live != nil && hook.IsHook(live) {
			continue
		}
		r, err := a.status(pairs.Target[i], pairs.Live[i], difference)
		if err != nil {
			return nil, err
		}
		resources = append(resources, r)
	}
	return resources, nil
}

func (a *application) status(target, live *unstructured.Unstructured, difference diff.DiffResult) (resource, error) {
	object := live
	if object == nil {
		object = target
	}
	key := kube.GetResourceKey(object)
	r := resource{Key: key.String(), Sync: string(v1alpha1.SyncStatusCodeSynced)}
	if difference.Modified || target == nil || live == nil {
		r.Sync, r.Live, r.Predicted = string(v1alpha1.SyncStatusCodeOutOfSync), difference.NormalizedLive, difference.PredictedLive
	}
	if live == nil {
		r.Health = string(health.HealthStatusMissing)
		return r, nil
	}
	status, err := health.GetResourceHealth(live, a.health())
	if err != nil {
		return r, fmt.Errorf("health of %s: %w", r.Key, err)
	}
	if status != nil {
		r.Health, r.HealthMessage = string(status.Status), status.Message
	}
	return r, nil
}
