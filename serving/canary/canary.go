// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package canary serves the canary API, which tells the operator whether kube-apiserver
// reaches this pod: v1alpha1.CanaryGroup, with one resource and the single verb get.
package canary

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

var groupVersion = schema.GroupVersion{Group: v1alpha1.CanaryGroup, Version: v1alpha1.CanaryVersion}

// Install adds the canary API to a scheme. Its only type is metadata.
func Install(scheme *runtime.Scheme) {
	scheme.AddKnownTypeWithName(groupVersion.WithKind(v1alpha1.CanaryKind), &metav1.PartialObjectMetadata{})
	metav1.AddToGroupVersion(scheme, groupVersion)
}

// InstallAPI adds the canary API to the server.
func InstallAPI(server *genericapiserver.GenericAPIServer) error {
	scheme := runtime.NewScheme()
	Install(scheme)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	info := genericapiserver.NewDefaultAPIGroupInfo(groupVersion.Group, scheme, runtime.NewParameterCodec(scheme), serializer.NewCodecFactory(scheme))
	info.PrioritizedVersions = []schema.GroupVersion{groupVersion}
	info.VersionedResourcesStorageMap[groupVersion.Version] = map[string]rest.Storage{v1alpha1.CanaryResource: storage{}}
	if err := server.InstallAPIGroup(&info); err != nil {
		return fmt.Errorf("install %s: %w", groupVersion, err)
	}
	return nil
}

// storage answers with an object of any name that is asked for.
type storage struct{}

var (
	_ rest.Scoper               = storage{}
	_ rest.Getter               = storage{}
	_ rest.SingularNameProvider = storage{}
)

// New implements rest.Storage.
func (storage) New() runtime.Object { return &metav1.PartialObjectMetadata{} }

// Destroy implements rest.Storage.
func (storage) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (storage) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (storage) GetSingularName() string { return "canary" }

// Get implements rest.Getter.
func (storage) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}
