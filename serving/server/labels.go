// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"hash/maphash"
	"maps"

	"k8s.io/utils/lru"
)

// sharedLabelSets is how many sets are remembered. A list comes in the order of
// names, in which the pods of a workload follow one another.
const sharedLabelSets = 4096

// labelSharing lets objects with equal labels hold one map: the pods of a
// ReplicaSet differ in nothing there, and the map is the larger part of what is
// kept of a pod. Who gets a map must not change it.
type labelSharing struct {
	seed   maphash.Seed
	recent *lru.Cache
}

func newLabelSharing() *labelSharing {
	return &labelSharing{seed: maphash.MakeSeed(), recent: lru.New(sharedLabelSets)}
}

// share returns a map that equals labels, one seen before where there is one.
func (s *labelSharing) share(labels map[string]string) map[string]string {
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

// hash does not depend on the order of iteration.
func (s *labelSharing) hash(labels map[string]string) uint64 {
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
