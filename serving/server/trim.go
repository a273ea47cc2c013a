// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"hash/maphash"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/lru"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// trimNode keeps the fields of a node that the store and the scraper need.
func trimNode() cache.TransformFunc {
	labels := newLabelInterner()
	return func(obj any) (any, error) {
		node, ok := obj.(*corev1.Node)
		if !ok {
			return obj, nil
		}
		trimmed := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, Labels: labels.intern(node.Labels),
			// Without it an informer treats every update as a resync.
			ResourceVersion: node.ResourceVersion,
		}}
		if path, ok := node.Annotations[v1alpha1.AnnotationMetricsPath]; ok {
			trimmed.Annotations = map[string]string{v1alpha1.AnnotationMetricsPath: path}
		}
		trimmed.Status.Addresses = node.Status.Addresses
		trimmed.Status.DaemonEndpoints = node.Status.DaemonEndpoints
		return trimmed, nil
	}
}

// internedLabelSets limits the label sets in a labelInterner. Lists are ordered by name, so
// the pods of a workload follow one another.
const internedLabelSets = 4096

// labelInterner lets objects with equal labels share one map, which must not be changed. The
// pods of a ReplicaSet have equal labels, and the map is the larger part of a trimmed pod.
type labelInterner struct {
	seed   maphash.Seed
	recent *lru.Cache
}

func newLabelInterner() *labelInterner {
	return &labelInterner{seed: maphash.MakeSeed(), recent: lru.New(internedLabelSets)}
}

// intern returns a map that equals labels: an earlier one if there is one.
func (s *labelInterner) intern(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	key := s.hash(labels)
	if known, ok := s.recent.Get(key); ok {
		if known, ok := known.(map[string]string); ok && maps.Equal(known, labels) {
			return known
		}
	}
	s.recent.Add(key, labels)
	return labels
}

// hash does not depend on the iteration order.
func (s *labelInterner) hash(labels map[string]string) uint64 {
	var sum uint64
	var h maphash.Hash
	h.SetSeed(s.seed)
	for name, value := range labels {
		h.Reset()
		_, _ = h.WriteString(name)
		_ = h.WriteByte(0)
		_, _ = h.WriteString(value)
		sum += h.Sum64()
	}
	return sum
}
