// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
)

// settings are what a running pod takes from its MetricsBackend.
type settings struct {
	kubelet kubelet.Settings
	// maxAge is the age from which points are no longer served.
	maxAge time.Duration
	watch  watchSettings
	// spec has its defaults. invalid is what is wrong with its parts that are judged
	// each by itself, see byItself.
	spec    *v1alpha1.MetricsBackendSpec
	invalid field.ErrorList
}

// settingsFrom reads a spec, filling in defaults; an empty spec gives those that
// are in force until a MetricsBackend was read. It checks the whole spec: a
// manifest on disk did not pass through the CRD's schema, and the operator only
// reports what it finds by the same rules. The error names every field that
// cannot be used.
func settingsFrom(given *v1alpha1.MetricsBackendSpec) (settings, error) {
	spec := given.DeepCopy()
	if spec.ResourceMetrics == nil {
		spec.ResourceMetrics = &v1alpha1.ResourceMetricsSpec{}
	}
	v1alpha1.SetDefaults(spec)
	errs := v1alpha1.Validate(spec)
	invalid := byItself(&errs)
	if len(errs) > 0 {
		return settings{}, errs.ToAggregate()
	}
	rm := spec.ResourceMetrics
	bodySize, err := rm.Scrape.MaxBodyBytes()
	if err != nil {
		return settings{}, fmt.Errorf("spec.resourceMetrics.scrape.maxBodySize %w", err)
	}
	selector := labels.Everything()
	if rm.Scrape.NodeSelector != nil {
		// A nil LabelSelector selects nothing; here it stands for all nodes.
		if selector, err = metav1.LabelSelectorAsSelector(rm.Scrape.NodeSelector); err != nil {
			return settings{}, fmt.Errorf("spec.resourceMetrics.scrape.nodeSelector: %w", err)
		}
	}
	if rm.Rules != nil {
		// Their figures come from a source, see resourceFigures. A slip in them must not
		// leave every autoscaler without CPU and memory.
		if usable, _ := rules.CompileResourceRules(rm.Rules, spec.Sources); usable != nil {
			selector = labels.Nothing()
		}
	}
	return settings{
		spec: spec, invalid: invalid,
		maxAge: rm.MaxAge.Duration,
		watch:  watchSettingsFrom(&spec.Watch),
		kubelet: kubelet.Settings{
			Interval:      rm.Scrape.Interval.Duration,
			Timeout:       rm.Scrape.Timeout.Duration,
			MaxConcurrent: int(*rm.Scrape.MaxConcurrent),
			MaxBodySize:   bodySize,
			AddressTypes:  rm.Scrape.AddressTypes,
			Port:          ptr.Deref(rm.Scrape.Port, 0),
			NodeSelector:  selector,
			TLS:           rm.KubeletTLS.Mode,
			CABundle:      rm.KubeletTLS.CABundle,
		},
	}, nil
}

// partsByThemselves are judged and reported each by itself, by those who serve them: a
// source or a rule that cannot be used stops nothing else.
var partsByThemselves = []string{"spec.sources", "spec.customMetrics", "spec.externalMetrics", "spec.resourceMetrics.rules"}

// byItself takes out of errs what is about parts that are judged by themselves.
func byItself(errs *field.ErrorList) field.ErrorList {
	var parts field.ErrorList
	*errs = slices.DeleteFunc(*errs, func(err *field.Error) bool {
		if slices.ContainsFunc(partsByThemselves, func(part string) bool { return within(err.Field, part) }) {
			parts = append(parts, err)
			return true
		}
		return false
	})
	return parts
}

// within says that a path is another one, or below it.
func within(path, of string) bool {
	rest, found := strings.CutPrefix(path, of)
	return found && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
