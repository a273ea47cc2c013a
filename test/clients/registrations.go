// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// registrations returns an informer that counts the APIServices that are created.
func (c *Clients) registrations() (cache.SharedIndexInformer, error) {
	client, err := metadata.NewForConfig(c.options.Config)
	if err != nil {
		return nil, fmt.Errorf("make a client of APIServices: %w", err)
	}
	resource := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	informer := metadatainformer.NewFilteredMetadataInformer(client, resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, initial bool) {
			if initial {
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.result.Registered++
		},
	})
	return informer, err
}
