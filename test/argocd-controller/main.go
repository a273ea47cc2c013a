// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command argocd-controller compares and synchronizes the objects of one Argo CD Application as Argo CD's application
// controller does, with the packages of Argo CD that do it there. Manifests are a file instead of a Git repository;
// settings come from argocd-cm in the cluster.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
)

// options are those of an Application that matter here, by the names that Argo CD has for them.
type options struct {
	// namespace is spec.destination.namespace.
	namespace string
	// serverSideApply is syncOptions: [ServerSideApply=true].
	serverSideApply bool
	// serverSideDiff is the annotation argocd.argoproj.io/compare-options: ServerSideDiff=true.
	serverSideDiff bool
	// prune is syncPolicy.automated.prune.
	prune bool
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "argocd-controller:", err)
		os.Exit(1)
	}
}

func run() error {
	flags := pflag.NewFlagSet("argocd-controller compare|sync", pflag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "file of an administrator")
	manifests := flags.String("manifests", "", "file with the manifests in Git")
	name := flags.String("application", "", "name of the Application")
	timeout := flags.Duration("timeout", 2*time.Minute, "how long a sync may take")
	var o options
	flags.StringVar(&o.namespace, "destination-namespace", "default", "spec.destination.namespace")
	flags.BoolVar(&o.serverSideApply, "server-side-apply", false, "sync option ServerSideApply=true")
	flags.BoolVar(&o.serverSideDiff, "server-side-diff", false, "compare option ServerSideDiff=true")
	flags.BoolVar(&o.prune, "prune", false, "delete objects of the Application that are no longer in Git, in the foreground")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100 // Argo CD's defaults
	objects, err := read(*manifests)
	if err != nil {
		return fmt.Errorf("read the manifests of %s: %w", *manifests, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	app, err := newApplication(ctx, config, *name, objects, o)
	if err != nil {
		return err
	}
	var result any
	switch command := flags.Arg(0); command {
	case "compare":
		result, err = app.compare()
	case "sync":
		result, err = app.sync(ctx)
	default:
		err = fmt.Errorf("unknown command %q: use compare or sync", command)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func read(path string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}
