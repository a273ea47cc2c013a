// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	autoscalinginformers "k8s.io/client-go/informers/autoscaling/v2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-controller-manager/config/v1alpha1"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	defaults "k8s.io/kubernetes/pkg/controller/podautoscaler/config/v1alpha1"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"k8s.io/metrics/pkg/client/custom_metrics"

	"github.com/metricsbackend/metrics-backend-operator/client"
)

// rediscover is how often kube-controller-manager lets go of what it knows of the API's resources.
const rediscover = 30 * time.Second

// Options of an autoscaler. The zero value is the stock controller with its defaults.
type Options struct {
	// Watch has pod metrics come by watch, and HPAs be due as they come. Without it they are polled.
	Watch bool
	// HPASelector selects HPAs by their labels; empty selects all. No two controllers may have the same HPA.
	HPASelector string
	// Settings are those of kube-controller-manager; zeros stand for its defaults.
	Settings v1alpha1.HPAControllerConfiguration
}

// Autoscaler is the HPA controller and what it needs around it.
type Autoscaler struct {
	controller *podautoscaler.HorizontalController
	settings   v1alpha1.HPAControllerConfiguration
	clients    clients
	informers  []informers.SharedInformerFactory

	// watcher and trigger are nil where metrics are polled.
	watcher podWatcher
	trigger *trigger
}

// New puts the controller together as kube-controller-manager does (cmd/kube-controller-manager/app/autoscaling.go).
// It sends events until ctx ends; everything else waits for Run.
func New(ctx context.Context, config *rest.Config, options Options) (*Autoscaler, error) {
	clients, err := newClients(config)
	if err != nil {
		return nil, err
	}
	var watcher podWatcher
	if options.Watch {
		if watcher, err = client.Pods(config, "", client.Options{}); err != nil {
			return nil, fmt.Errorf("making the autoscaler's watcher of pod metrics: %w", err)
		}
	}
	return assemble(ctx, clients, watcher, options)
}

// assemble polls without a watcher.
func assemble(ctx context.Context, clients clients, watcher podWatcher, options Options) (*Autoscaler, error) {
	selected := informers.NewSharedInformerFactoryWithOptions(clients.core, 0, informers.WithTweakListOptions(
		func(list *metav1.ListOptions) { list.LabelSelector = options.HPASelector }))
	all := informers.NewSharedInformerFactory(clients.core, 0)
	a := &Autoscaler{
		settings: options.Settings, clients: clients, watcher: watcher,
		informers: []informers.SharedInformerFactory{selected, all},
	}
	defaults.RecommendedDefaultHPAControllerConfiguration(&a.settings)

	var (
		pods                                                        = clients.resource
		scales                                                      = clients.scale
		hpas   autoscalinginformers.HorizontalPodAutoscalerInformer = selected.Autoscaling().V2().HorizontalPodAutoscalers()
	)
	if watcher != nil {
		targets, requeuing := newTargets(scales), newRequeuing(hpas)
		if _, err := hpas.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: targets.hpaDeleted}); err != nil {
			return nil, fmt.Errorf("listening to the end of HPAs: %w", err)
		}
		a.trigger = newTrigger(hpas.Lister(), targets, requeuing.requeue)
		pods, scales, hpas = snapshotLister{pods, watcher}, targets, requeuing
	}
	a.controller = podautoscaler.NewHorizontalController(ctx,
		clients.core.CoreV1(), scales, clients.core.AutoscalingV2(), clients.mapper,
		metrics.NewRESTMetricsClient(pods, clients.custom, clients.external),
		hpas, all.Core().V1().Pods(),
		a.settings.HorizontalPodAutoscalerSyncPeriod.Duration,
		a.settings.HorizontalPodAutoscalerDownscaleStabilizationWindow.Duration,
		a.settings.HorizontalPodAutoscalerTolerance,
		a.settings.HorizontalPodAutoscalerCPUInitializationPeriod.Duration,
		a.settings.HorizontalPodAutoscalerInitialReadinessDelay.Duration,
	)
	return a, nil
}

// Run autoscales until ctx ends. It can be called once.
func (a *Autoscaler) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, factory := range a.informers {
		factory.StartWithContext(ctx)
		defer factory.Shutdown()
	}
	running.Go(func() { wait.UntilWithContext(ctx, func(context.Context) { a.clients.mapper.Reset() }, rediscover) })
	running.Go(func() {
		custom_metrics.PeriodicallyInvalidate(a.clients.customVersions, a.settings.HorizontalPodAutoscalerSyncPeriod.Duration, ctx.Done())
	})
	if a.watcher != nil {
		running.Go(func() { a.trigger.run(ctx, a.watcher.Changes()) })
		// Its only error is of a second call.
		running.Go(func() { _ = a.watcher.Run(ctx) })
	}
	a.controller.Run(ctx, int(a.settings.ConcurrentHorizontalPodAutoscalerSyncs))
}
