// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// source is a Prometheus as prometheus-adapter's flags describe it.
type source struct {
	URL            string
	SeriesInterval time.Duration
	SeriesMaxAge   time.Duration
	Headers        []header
	// ambiguous says which Deployments name different URLs.
	ambiguous string
	// remarks on flags that are not taken over.
	remarks []string
}

type header struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

// adapterRelist is prometheus-adapter's own time between two looks at the series, and
// how far it then looks back, where no flag says otherwise.
const adapterRelist = 10 * time.Minute

// takeDeployments takes over what the flags of the first say; the others have to agree
// with it on the URL.
func (s *source) takeDeployments(adapters []deployment) {
	for i, d := range adapters {
		var other source
		if i == 0 {
			s.takeArguments(d.args)
			if s.SeriesInterval == 0 && s.SeriesMaxAge == 0 {
				// Otherwise series that come each 6 to 10 minutes would be lost.
				s.SeriesMaxAge = adapterRelist
			}
			continue
		}
		if other.takeArguments(d.args); other.URL != s.URL {
			// The URLs themselves may hold credentials.
			s.URL, s.ambiguous = "", fmt.Sprintf("the Deployments %s and %s have different flags --prometheus-url", adapters[0], d)
			return
		}
	}
}

// takeArguments takes over what the flags of prometheus-adapter say of its Prometheus.
func (s *source) takeArguments(args []string) {
	for i, arg := range args {
		name, value, assigned := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "-") {
			continue
		}
		name = strings.TrimLeft(name, "-")
		if !assigned && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			value = args[i+1]
		}
		switch name {
		case "prometheus-url":
			s.URL = value
		case "metrics-relist-interval":
			s.SeriesInterval = s.duration(name, value, 5*time.Second, time.Hour)
		case "metrics-max-age":
			s.SeriesMaxAge = s.duration(name, value, 5*time.Second, 24*time.Hour)
		case "prometheus-header":
			s.takeHeader(value)
		case "prometheus-ca-file", "prometheus-client-tls-cert-file", "prometheus-client-tls-key-file":
			s.remark("--" + name + ": put the file's content into a Secret and name it in spec.sources[0].prometheus.tls")
		case "prometheus-token-file":
			s.remark("--" + name + ": put the token into a Secret and name it in spec.sources[0].prometheus.authentication.bearerToken")
		case "prometheus-auth-incluster", "prometheus-auth-config":
			s.remark("--" + name + ": name a Secret with the credentials in spec.sources[0].prometheus.authentication")
		}
	}
}

func (s *source) remark(text string) {
	// A key follows its certificate: one remark for both is enough, and for each flag.
	if !slices.Contains(s.remarks, text) {
		s.remarks = append(s.remarks, text)
	}
}

func (s *source) duration(name, value string, least, most time.Duration) time.Duration {
	d, err := time.ParseDuration(value)
	if err != nil || d < least || d > most {
		s.remark(fmt.Sprintf("--%s=%s: not taken over, since it is no duration from %v to %v", name, value, least, most))
		return 0
	}
	return d
}

// takeHeader takes a tenant's header over, and no credentials.
func (s *source) takeHeader(text string) {
	name, value, _ := strings.Cut(text, "=")
	if v1alpha1.IsCredentialHeader(name) {
		s.remark("--prometheus-header=" + name + "=…: credentials belong into a Secret; name it in spec.sources[0].prometheus.authentication, or in valueFrom of a header")
		return
	}
	s.Headers = append(s.Headers, header{Name: name, Value: value})
}

// check makes of the URL what the CRD takes.
func (s *source) check() error {
	if s.URL == "" && s.ambiguous != "" {
		return fmt.Errorf("%s: say which Prometheus is asked: --prometheus-url=http://NAME.NAMESPACE.svc:9090", s.ambiguous)
	}
	if s.URL == "" {
		return fmt.Errorf("say which Prometheus is asked: --prometheus-url=http://NAME.NAMESPACE.svc:9090")
	}
	parsed, err := url.Parse(s.URL)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		// The error of url.Parse repeats all of it, a password too.
		return fmt.Errorf("the URL of Prometheus cannot be used: it must have http:// or https:// and a host, and may have a port and a path, as http://NAME.NAMESPACE.svc:9090; --prometheus-url says another")
	}
	if parsed.User != nil {
		parsed.User = nil
		s.remark("credentials in the URL of Prometheus: put them into a Secret and name it in spec.sources[0].prometheus.authentication.basic")
	}
	if parsed.RawQuery != "" || parsed.Fragment != "" {
		parsed.RawQuery, parsed.Fragment = "", ""
		s.remark("the query in the URL of Prometheus is left out: a tenant belongs into spec.sources[0].prometheus.headers")
	}
	if s.SeriesInterval > 0 && s.SeriesMaxAge == 0 && s.SeriesInterval > 5*time.Minute {
		s.SeriesMaxAge = s.SeriesInterval // its default is 5m, and it must not be shorter
	}
	if s.SeriesMaxAge > 0 && s.SeriesMaxAge < max(s.SeriesInterval, time.Minute) {
		s.SeriesMaxAge = max(s.SeriesInterval, time.Minute) // as prometheus-adapter demands
	}
	s.URL = parsed.String()
	return nil
}
