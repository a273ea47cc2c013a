// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/certificates"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

func TestWaitReason(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	serves := func(versions ...schema.GroupVersion) *servingclient.Answer {
		answer := &servingclient.Answer{Serves: map[schema.GroupVersion]bool{}}
		for _, gv := range versions {
			answer.Serves[gv] = true
		}
		return answer
	}
	ending := func(deadline time.Duration, answer *servingclient.Answer, err error) []pod {
		return []pod{{probeResult: probeResult{answer: answer, err: err}, Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "old", DeletionTimestamp: &metav1.Time{Time: now.Add(deadline)},
		}}}}
	}
	const waits = "waits for the end of pod old (image unknown), which is ending and does not "
	refused := errors.New("connection refused")
	cases := map[string]struct {
		ending []pod
		// rolling: the rollout is not finished.
		rolling bool
		want    string
	}{
		"pods are to come":        {rolling: true, want: "waits until the rollout is finished"},
		"none":                    {},
		"it serves the version":   {ending: ending(time.Minute, serves(v1), nil)},
		"it does not":             {ending: ending(time.Minute, serves(v1beta1), nil), want: waits + "serve it"},
		"it does not, and lasts":  {ending: ending(-time.Hour, serves(v1beta1), nil), want: waits + "serve it"},
		"it does not answer":      {ending: ending(time.Minute, nil, refused), want: waits + "answer"},
		"its node went before it": {ending: ending(-time.Minute, nil, refused)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &reconcileState{
				now: now, certificate: certificates.Certificate{CABundle: []byte("x")},
				rollout: rolloutState{finished: !tc.rolling, terminating: tc.ending, pods: []pod{{Pod: &corev1.Pod{}, ready: true, probeResult: probeResult{answer: serves(v1, v1beta1)}}}},
			}
			if got := s.waitReason(v1); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
