// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reports evaluates what serving pods report: of kubelets, of sources, of rules and of
// clients. It makes no request: each function returns what the status says.
package reports

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/internal/debounce"
)

const (
	// Grace is for failures of kubelets, sources and rules: in a large cluster some kubelet is always
	// restarting.
	Grace = 45 * time.Second
	// MessageGrace is how long a message stays in the status when only its text changes: text from
	// other programs may differ with each failure.
	MessageGrace = 5 * time.Minute
)

// Input is what the reports of the pods are evaluated against.
type Input struct {
	// Backend is the name of the MetricsBackend, Generation that of its spec, which has all defaults.
	Backend    string
	Generation int64
	Spec       v1alpha1.MetricsBackendSpec
	Serving    manifests.Serving
	// Stored is the status before this reconciliation.
	Stored *v1alpha1.MetricsBackendStatus
	Now    time.Time
	// Streaks are kept between reconciliations.
	Streaks *debounce.Tracker[Key]
}

// Result is one part's contribution to a condition.
type Result struct {
	Status          metav1.ConditionStatus
	Reason, Message string
}

// Key names a failure whose duration is tracked: of kubelets, or of the source or rule that name
// and reason give.
type Key struct {
	failure      failure
	name, reason string
}

type failure int

const (
	kubeletsFailing failure = iota
	sourceFailing
	ruleFailing
	// sourceMessageDiffers and ruleMessageDiffers: only the message of a source, or of a rule and reason,
	// differs from the status.
	sourceMessageDiffers
	ruleMessageDiffers
)

// ForgetKubelets ends the grace period of failing kubelets, since no pod reports on them.
func ForgetKubelets(streaks *debounce.Tracker[Key]) { streaks.Reset(Key{failure: kubeletsFailing}) }

// condition returns a condition of the stored status, or an empty one.
func (in *Input) condition(kind string) metav1.Condition {
	return ptr.Deref(meta.FindStatusCondition(in.Stored.Conditions, kind), metav1.Condition{})
}

// debounceMessage returns old, the message in the status, until it has differed from
// message for MessageGrace. The caller checked that nothing else differs.
func (in *Input) debounceMessage(key Key, old, message string) string {
	if differs := old != "" && old != message; differs && in.Streaks.Set(key, true).Elapsed < MessageGrace {
		return old
	}
	in.Streaks.Reset(key)
	return message
}
