// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Allocatable is what each of the selected nodes has for pods, by its name.
func (c *Cluster) Allocatable(ctx context.Context, labelSelector, fieldSelector string) (map[string]corev1.ResourceList, error) {
	byLabel, err := labels.Parse(labelSelector)
	if err != nil {
		return nil, err
	}
	byField, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return nil, err
	}
	found := map[string]corev1.ResourceList{}
	var page corev1.NodeList
	err = c.Each(ctx, &page, func() {
		for i := range page.Items {
			found[page.Items[i].Name] = page.Items[i].Status.Allocatable
		}
	}, client.MatchingLabelsSelector{Selector: byLabel}, client.MatchingFieldsSelector{Selector: byField})
	return found, err
}
