// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/consumers"
)

// newRecorder records the clients of every version that is served, best first.
func (o *Options) newRecorder(c clock.PassiveClock) (*consumers.Recorder, error) {
	enabled, err := o.enabledVersions()
	if err != nil {
		return nil, err
	}
	var versions []schema.GroupVersion
	for _, version := range compiledVersions() {
		if enabled.Has(version) {
			versions = append(versions, version)
		}
	}
	return consumers.NewRecorder(c, versions), nil
}

// consumersHandler answers a ConsumerReport.
func consumersHandler(recorder *consumers.Recorder) http.Handler {
	return reportHandler("consumers", func(context.Context) any { return recorder.Report() })
}
