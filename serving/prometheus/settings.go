// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

// minSampleSize is less than the size of a labelled sample in JSON. It limits the samples of a
// response, which take more memory than their text if they are smaller.
const minSampleSize = 64

// settings are a spec with its defaults. They are immutable.
type settings struct {
	client    sourceclient.Spec
	partial   v1alpha1.PartialResponsePolicy
	timeout   time.Duration
	discovery series.Settings
	// maxBytes limits the response to a query.
	maxBytes int64
	// seriesTimeout, seriesResponseBytes and seriesBytes limit a lookup of series.
	seriesTimeout                    time.Duration
	seriesResponseBytes, seriesBytes int64
}

// newSettings returns the settings of a source. Errors say what to change. Secrets are not read.
func newSettings(given *v1alpha1.PrometheusSource) (*settings, error) {
	spec := given.DeepCopy()
	backend := &v1alpha1.MetricsBackendSpec{Sources: []v1alpha1.SourceSpec{{Name: "any", Prometheus: spec}}}
	v1alpha1.SetDefaults(backend)
	// The CRD has the same rule. A password would not be redacted; errors do not have the URL.
	u, err := url.Parse(spec.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.ContainsAny(spec.URL, "?#") {
		return nil, errors.New("url must be http:// or https:// and a host, without user, query and fragment")
	}
	maxBytes, err := resource.ParseQuantity(spec.MaxResponseSize)
	if err != nil {
		return nil, fmt.Errorf("maxResponseSize: %w", err)
	}
	parameters := ""
	for _, p := range spec.QueryParameters {
		parameters += "&" + url.QueryEscape(p.Name) + "=" + url.QueryEscape(p.Value)
	}
	return &settings{
		client: sourceclient.Spec{
			Endpoint: strings.TrimRight(u.String(), "/"), Parameters: parameters,
			TLS: spec.TLS, Authentication: spec.Authentication, Headers: spec.Headers,
		},
		partial:             spec.PartialResponsePolicy,
		timeout:             spec.Timeout.Duration,
		discovery:           series.Settings{Interval: spec.SeriesInterval.Duration, MaxAge: spec.SeriesLookback.Duration},
		seriesTimeout:       max(spec.Timeout.Duration, minSeriesTimeout),
		seriesResponseBytes: maxSeriesResponseBytes,
		seriesBytes:         maxSeriesBytes,
		maxBytes:            maxBytes.Value(),
	}, nil
}

// bounds limit the response to a query.
type bounds struct {
	bytes   int64
	samples int
	// label limits the bytes of the name and of the value of a label, if not 0.
	label int
	// remedy is what to do about a response beyond them.
	remedy string
}

// bounds returns those of the spec, or lower ones for a declared metric.
func (s *settings) bounds(declared bool) bounds {
	b := bounds{bytes: s.maxBytes}
	limit, remedy := "maxResponseSize is", "aggregate more in the query, or raise it"
	if declared {
		b.label = query.MaxLabelBytes
		if b.bytes > query.MaxDeclaredBytes {
			b.bytes, limit, remedy = query.MaxDeclaredBytes, "the limit of a declared metric is", "aggregate more in spec.query, and keep fewer labels"
		}
	}
	b.samples = int(min(b.bytes/minSampleSize+1, math.MaxInt32))
	b.remedy = fmt.Sprintf("%s %d bytes, which is at most %d samples: %s", limit, b.bytes, b.samples, remedy)
	return b
}
