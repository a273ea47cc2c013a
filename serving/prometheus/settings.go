// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"errors"
	"fmt"
	"math"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
)

// What holds where the spec says nothing.
const (
	defaultTimeout         = 10 * time.Second
	defaultSeriesInterval  = time.Minute
	defaultSeriesMaxAge    = 5 * time.Minute
	defaultMaxResponseSize = 32 << 20
)

// minSampleSize is less than a labelled sample takes in JSON. An answer of many
// smaller things, which take far more memory than bytes, is none that anybody asked for.
const minSampleSize = 64

// settings are a spec as it is used. They are immutable.
type settings struct {
	spec           *v1alpha1.PrometheusSource
	endpoint       string
	timeout        time.Duration
	seriesInterval time.Duration
	seriesMaxAge   time.Duration
	// maxBytes and maxSamples bound an answer.
	maxBytes   int64
	maxSamples int
}

// managedHeaders are those that the client sets itself; another value would break
// requests, or the bound on answers.
var managedHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// settle checks a spec. Errors say what to change; what is in Secrets is looked at
// only when a request needs it.
func settle(spec *v1alpha1.PrometheusSource) (*settings, error) {
	u, err := url.Parse(spec.URL)
	if err != nil {
		// The error of url.Parse holds the URL, which may hold a password.
		return nil, errors.New("url: not a URL: write it as https://HOST[:PORT][/PREFIX]")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("url: %q: write it as https://HOST[:PORT][/PREFIX]", u.Redacted())
	case u.User != nil:
		return nil, fmt.Errorf("url: it holds credentials: give them in authentication.basic, from a Secret")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, fmt.Errorf("url: %q: no query and no fragment can be used: give the prefix of the paths, before /api/v1", u.Redacted())
	}
	for i, h := range spec.Headers {
		name := textproto.CanonicalMIMEHeaderKey(h.Name)
		switch {
		case !httpguts.ValidHeaderFieldName(h.Name):
			return nil, fmt.Errorf("headers[%d].name: %q is not the name of a header", i, h.Name)
		case slices.Contains(managedHeaders, name):
			return nil, fmt.Errorf("headers[%d].name: %s is set by the client itself: remove it", i, name)
		case !httpguts.ValidHeaderFieldValue(h.Value):
			return nil, fmt.Errorf("headers[%d].value: it holds a character that cannot be in a header", i)
		}
	}
	s := &settings{
		spec:           spec.DeepCopy(),
		endpoint:       strings.TrimRight(u.String(), "/"),
		timeout:        durationOr(spec.Timeout, defaultTimeout),
		seriesInterval: durationOr(spec.SeriesInterval, defaultSeriesInterval),
		seriesMaxAge:   durationOr(spec.SeriesMaxAge, defaultSeriesMaxAge),
		maxBytes:       bytesOr(spec, defaultMaxResponseSize),
	}
	s.seriesMaxAge = max(s.seriesMaxAge, s.seriesInterval)
	s.maxSamples = int(min(s.maxBytes/minSampleSize+1, math.MaxInt32))
	return s, nil
}

func (s *settings) discovery() series.Settings {
	return series.Settings{Interval: s.seriesInterval, MaxAge: s.seriesMaxAge}
}

func durationOr(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil || d.Duration <= 0 {
		return otherwise
	}
	return d.Duration
}

func bytesOr(spec *v1alpha1.PrometheusSource, otherwise int64) int64 {
	if size, err := spec.MaxResponseBytes(); err == nil {
		return size
	}
	return otherwise
}
