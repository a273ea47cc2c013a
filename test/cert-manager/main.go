// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cert-manager runs cert-manager's own controllers for Certificates and for issuers of the kinds CA and
// SelfSigned, until it is interrupted. cert-manager's main is in a module that is not published; it registers and starts
// the controllers in the same way. There is no webhook, so objects must be valid.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"         // registers the kind
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned" // registers the kind
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
)

// controllers are those of cert-manager that run.
var controllers = []string{
	issuers.ControllerName, clusterissuers.ControllerName,
	approver.ControllerName, ca.CRControllerName, selfsigned.CRControllerName,
	trigger.ControllerName, keymanager.ControllerName, requestmanager.ControllerName, issuing.ControllerName,
	readiness.ControllerName, revisionmanager.ControllerName,
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := pflag.NewFlagSet("cert-manager", pflag.ExitOnError)
	var options controller.ContextOptions
	flags.StringVar(&options.Kubeconfig, "kubeconfig", "", "file of an administrator")
	flags.StringVar(&options.ClusterResourceNamespace, "cluster-resource-namespace", "cert-manager", "namespace of the Secrets of ClusterIssuers")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	// As cert-manager's defaults.
	options.CertificateRequestMinimumBackoffDuration = time.Hour
	options.CertificateRequestMaximumBackoffDuration = 32 * time.Hour
	options.KubernetesAPIQPS, options.KubernetesAPIBurst = 20, 50
	group, ctx := errgroup.WithContext(ctx)
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		return err
	}
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	known := controller.Known()
	for _, name := range controllers {
		c, err := known[name](factory)
		if err != nil {
			return fmt.Errorf("make the controller %s: %w", name, err)
		}
		group.Go(func() error {
			if err := c.Run(5, ctx); err != nil {
				return fmt.Errorf("controller %s: %w", name, err)
			}
			return nil
		})
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	return group.Wait()
}
