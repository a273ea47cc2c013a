// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Complete completes an argument or the value of a flag with what names returns for the arguments before it. An error
// completes nothing.
func Complete(flags genericclioptions.RESTClientGetter, names func(ctx context.Context, cluster *Cluster, args []string) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var found []string
		if cluster, err := Open(flags, io.Discard); err == nil {
			found, _ = names(cmd.Context(), cluster, args)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteBackend completes the first argument with the names of MetricsBackends.
func CompleteBackend(flags genericclioptions.RESTClientGetter) cobra.CompletionFunc {
	return Complete(flags, func(ctx context.Context, cluster *Cluster, args []string) ([]string, error) {
		if len(args) > 0 {
			return nil, nil
		}
		backends, err := cluster.Backends(ctx)
		return namesOf(backends), err
	})
}

// CompleteNamespace completes a flag --namespace of the command.
func CompleteNamespace(cmd *cobra.Command, flags genericclioptions.RESTClientGetter) {
	// It only fails for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc("namespace", Complete(flags, func(ctx context.Context, cluster *Cluster, _ []string) ([]string, error) {
		return cluster.ListNames(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "")
	}))
}

// ListNames returns the names of all objects of a kind in a namespace.
func (c *Cluster) ListNames(ctx context.Context, kind schema.GroupVersionKind, namespace string) ([]string, error) {
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(kind)
	var names []string
	err := c.Each(ctx, page, func() {
		for i := range page.Items {
			names = append(names, page.Items[i].Name)
		}
	}, client.InNamespace(namespace))
	return names, err
}
