// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package wake

import "testing"

// TestSet: sets before a receive count as one.
func TestSet(t *testing.T) {
	s := NewSignal()
	s.Set()
	s.Set()
	<-s
	select {
	case <-s:
		t.Error("two sets were received twice")
	default:
	}
}
