// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/declaredmetric"
	"github.com/metricsbackend/metrics-backend-operator/controllers/externalmetricspolicy"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

func newCommand() *cobra.Command {
	o := newOptions()
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Deploys the serving component of MetricsBackends and keeps its API versions registered",
		Args:  cobra.NoArgs,
		// Errors at runtime are not about usage.
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
				return err
			}
			ctrl.SetLogger(klog.Background())
			if err := o.complete(); err != nil {
				return err
			}
			return run(ctrl.SetupSignalHandler(), o)
		},
		Version: version.Get().GitVersion,
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// run runs the operator until ctx ends.
func run(ctx context.Context, o *options) error {
	config, err := o.restConfig()
	if err != nil {
		return fmt.Errorf("find kube-apiserver: %w", err)
	}
	kinds, err := newScheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, o.managerOptions(kinds))
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	aggregated, err := aggregator.NewClient(config, mgr.GetAPIReader())
	if err != nil {
		return err
	}
	pods, directory := servingclient.NewClient(nil), servingclient.NewDirectory()
	reconciler := metricsbackend.New(metricsbackend.Options{
		Client:       mgr.GetClient(),
		APIReader:    mgr.GetAPIReader(),
		Events:       mgr.GetEventRecorder(v1alpha1.FieldOwner),
		Pods:         pods,
		Directory:    directory,
		Aggregator:   aggregated,
		Clock:        clock.RealClock{},
		Namespace:    o.namespace,
		Namespaces:   o.namespaces,
		ServingImage: o.servingImage,
	})
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up controller %s: %w", metricsbackend.Name, err)
	}
	declared := declaredmetric.New(declaredmetric.Options{
		Client: mgr.GetClient(), Pods: pods, Tokens: servingclient.NewTokens(mgr.GetClient(), clock.RealClock{}), Directory: directory,
		Clock: clock.RealClock{},
	})
	if err := declared.SetupWithManager(mgr); err != nil {
		return err
	}
	policies := &externalmetricspolicy.Reconciler{Client: mgr.GetClient(), Clock: clock.RealClock{}}
	if err := policies.SetupWithManager(mgr); err != nil {
		return err
	}
	if err := mgr.Add(&namespaceCleanup{apiReader: mgr.GetAPIReader(), namespace: o.namespace, retireAll: reconciler.RetireAll}); err != nil {
		return fmt.Errorf("set up the cleanup of the namespace: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("set up /healthz: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("set up /readyz: %w", err)
	}
	klog.FromContext(ctx).Info("Starting", "version", version.Get().GitVersion, "namespace", o.namespace,
		"namespaces", o.namespaces, "servingImage", o.servingImage)
	return mgr.Start(ctx)
}

// newScheme returns a scheme with every kind that the operator reads or writes.
func newScheme() (*runtime.Scheme, error) {
	kinds := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(scheme.AddToScheme, apiregistrationv1.AddToScheme, v1alpha1.AddToScheme)
	if err := builder.AddToScheme(kinds); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	return kinds, nil
}
