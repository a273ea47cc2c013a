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

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// minSampleSize is less than the size of a labelled sample in JSON. It limits the samples of a
// response, which take more memory than their text if they are smaller.
const minSampleSize = 64

// settings are a validated spec. They are immutable.
type settings struct {
	spec     *v1alpha1.PrometheusSource
	endpoint string
	// parameters are those of the spec, encoded, as they are added to a form: with & before each.
	parameters     string
	timeout        time.Duration
	seriesInterval time.Duration
	seriesMaxAge   time.Duration
	// maxBytes limits the response to a query.
	maxBytes int64
	// seriesTimeout, seriesResponseBytes and seriesBytes limit a lookup of series.
	seriesTimeout                    time.Duration
	seriesResponseBytes, seriesBytes int64
}

// managedHeaders are set by the client itself; other values would break requests, or the limits
// of responses.
var managedHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect",
	"Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// newSettings validates a spec. Errors say what to change. Secrets are not read.
func newSettings(given *v1alpha1.PrometheusSource) (*settings, error) {
	spec := given.DeepCopy()
	v1alpha1.SetDefaults(&v1alpha1.MetricsBackendSpec{Sources: []v1alpha1.SourceSpec{{Prometheus: spec}}})
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
	parameters := ""
	for _, p := range spec.QueryParameters {
		parameters += "&" + url.QueryEscape(p.Name) + "=" + url.QueryEscape(p.Value)
	}
	s := &settings{
		spec:                spec,
		parameters:          parameters,
		endpoint:            strings.TrimRight(u.String(), "/"),
		timeout:             spec.Timeout.Duration,
		seriesInterval:      spec.SeriesInterval.Duration,
		seriesMaxAge:        max(spec.SeriesMaxAge.Duration, spec.SeriesInterval.Duration),
		seriesTimeout:       max(spec.Timeout.Duration, minSeriesTimeout),
		seriesResponseBytes: maxSeriesResponseBytes,
		seriesBytes:         maxSeriesBytes,
	}
	if s.maxBytes, err = spec.MaxResponseBytes(); err != nil {
		return nil, fmt.Errorf("maxResponseSize %w", err)
	}
	for name, d := range map[string]time.Duration{"timeout": s.timeout, "seriesInterval": s.seriesInterval} {
		if d <= 0 {
			return nil, fmt.Errorf("%s: it must be longer than 0", name)
		}
	}
	return s, nil
}

// sameData reports whether both are for the same server and tenant, and have the same parameters,
// which may select series, as far as the spec shows: contents of Secrets may rotate.
func (s *settings) sameData(o *settings) bool {
	return s.endpoint == o.endpoint && s.parameters == o.parameters && slices.EqualFunc(s.spec.Headers, o.spec.Headers, func(a, b v1alpha1.SourceHeader) bool {
		return a.Name == b.Name && a.Value == b.Value
	})
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

func (s *settings) discovery() series.Settings {
	return series.Settings{Interval: s.seriesInterval, MaxAge: s.seriesMaxAge}
}
