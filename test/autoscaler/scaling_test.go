// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The real controller decides once a data point has settled by watch, and at its next sync by polling, of the same
// metrics.
func TestDecision(t *testing.T) {
	type points func(*scenario)
	for name, c := range map[string]struct {
		points      points
		watch, poll []string
	}{
		"above target": {
			func(s *scenario) { s.at(18500 * time.Millisecond); s.point("web", "200m") },
			[]string{"18.5s web: 4"}, []string{"30s web: 4"},
		},
		"just after a sync": {
			func(s *scenario) { s.at(15500 * time.Millisecond); s.point("web", "80m") },
			[]string{"15.5s web: 2"}, []string{"30s web: 2"},
		},
		"within tolerance": {
			func(s *scenario) { s.at(18500 * time.Millisecond); s.point("web", "54m") },
			nil, nil,
		},
		"first of two data points": {
			func(s *scenario) {
				s.at(18500 * time.Millisecond)
				s.point("web", "80m")
				s.at(28500 * time.Millisecond)
				s.point("web", "200m")
			},
			// At the second there are two replicas, of which one has no metrics yet: it counts as idle.
			[]string{"18.5s web: 2", "28.5s web: 4"}, []string{"30s web: 4"},
		},
		"each HPA by its own": {
			func(s *scenario) {
				s.at(18500 * time.Millisecond)
				s.point("web", "200m")
				s.at(20500 * time.Millisecond)
				s.point("db", "200m")
			},
			[]string{"18.5s web: 4", "20.5s db: 4"}, []string{"30s db: 4", "30s web: 4"},
		},
	} {
		for way, watch := range map[string]bool{"watch": true, "poll": false} {
			t.Run(name+" by "+way, func(t *testing.T) {
				s := &scenario{}
				s.run(t, watch, []*autoscalingv2.HorizontalPodAutoscaler{hpa("web"), hpa("db")}, func() {
					c.points(s)
					s.at(40 * time.Second)
					want := c.poll
					if watch {
						want = c.watch
					}
					if diff := cmp.Diff(want, s.decided()); diff != "" {
						t.Error(diff)
					}
				})
			})
		}
	}
}

// An HPA that ends and comes back as another is heard of in this order, and has its data points at once.
func TestHPAReplaced(t *testing.T) {
	s := &scenario{}
	s.run(t, true, []*autoscalingv2.HorizontalPodAutoscaler{hpa("web"), hpa("db")}, func() {
		hpas := s.core.AutoscalingV2().HorizontalPodAutoscalers("shop")
		if err := hpas.Delete(t.Context(), "scales-web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.at(20 * time.Second)
		s.point("web", "200m")
		s.at(40 * time.Second)
		if got := s.decided(); got != nil {
			t.Errorf("decided without an HPA: %v", got)
		}
		again := hpa("web")
		again.Name = "again"
		if _, err := hpas.Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.at(47500 * time.Millisecond)
		s.point("web", "300m")
		s.at(60 * time.Second)
		if diff := cmp.Diff([]string{"40s web: 4", "47.5s web: 6"}, s.decided()); diff != "" {
			t.Error(diff)
		}
	})
}
