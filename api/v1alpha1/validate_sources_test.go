// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func secretKeyNamed(name, key string) *SecretKeyReference {
	return &SecretKeyReference{SecretReference: SecretReference{Name: name}, Key: key}
}

func TestValidateSources(t *testing.T) {
	const secret = "hunter2"
	tests := map[string]struct {
		change func(*MetricsBackendSpec, *PrometheusSource)
		// want are the fields that are wrong, below spec.
		want     []string
		messages []string
	}{
		"defaults": {},
		"versions": {change: func(spec *MetricsBackendSpec, _ *PrometheusSource) {
			spec.CustomMetrics.Versions = []CustomMetricsVersion{"v1", "v1beta1", "v1beta1"}
			spec.ExternalMetrics = &ExternalMetricsSpec{Versions: []ExternalMetricsVersion{"v1beta2"}}
		}, want: []string{"customMetrics.versions", "customMetrics.versions[2]", "externalMetrics.versions"}},
		"rules are not looked into": {change: func(spec *MetricsBackendSpec, _ *PrometheusSource) {
			spec.CustomMetrics.Rules = []MetricRule{{}, {SeriesQuery: "{{{", Source: "nobody", Interval: "soon", Duplicates: "Guess"}}
			spec.ResourceMetrics = &ResourceMetricsSpec{Rules: &ResourceRules{Window: "never"}}
			SetDefaults(spec)
		}},
		"too many rules": {change: func(spec *MetricsBackendSpec, _ *PrometheusSource) {
			spec.CustomMetrics.Rules = make([]MetricRule, MaxRules+1)
		}, want: []string{"customMetrics.rules"}},
		"no source": {change: func(spec *MetricsBackendSpec, _ *PrometheusSource) {
			spec.Sources = nil
			spec.ExternalMetrics = &ExternalMetricsSpec{}
			spec.ResourceMetrics = &ResourceMetricsSpec{Rules: &ResourceRules{}}
			SetDefaults(spec)
		}, want: []string{"sources", "sources", "sources"}, messages: []string{"spec.customMetrics needs at least one source", "spec.resourceMetrics.rules needs"}},
		"no source, but another implementation": {change: func(spec *MetricsBackendSpec, _ *PrometheusSource) {
			spec.Sources, spec.Existing = nil, &ExistingSpec{}
		}},
		"names": {change: func(spec *MetricsBackendSpec, _ *PrometheusSource) {
			spec.Sources = append(spec.Sources, SourceSpec{Name: "main"}, SourceSpec{Name: "A b"})
		}, want: []string{"sources[1].name", "sources[1]", "sources[2].name", "sources[2]"}},
		"too many": {change: func(spec *MetricsBackendSpec, _ *PrometheusSource) {
			for range MaxSources {
				spec.Sources = append(spec.Sources, *spec.Sources[0].DeepCopy())
				spec.Sources[len(spec.Sources)-1].Name = "x" + strings.Repeat("y", len(spec.Sources))
			}
		}, want: []string{"sources"}},

		"another implementation": {change: func(spec *MetricsBackendSpec, _ *PrometheusSource) {
			spec.Sources[0] = SourceSpec{Name: "keda", MetricsAPI: &MetricsAPISource{
				Service: ExistingService{Namespace: "keda", Name: "keda-operator-metrics-apiserver", Port: new(int32(443))},
				Group:   ExternalMetricsGroup, TLS: SourceTLS{CA: secretKeyNamed("kedaorg-certs", "ca.crt")},
			}}
		}},
		"another implementation that is wrong in every way": {change: func(spec *MetricsBackendSpec, _ *PrometheusSource) {
			spec.Sources[0] = SourceSpec{Name: "keda", MetricsAPI: &MetricsAPISource{
				Service: ExistingService{Namespace: "../x", Name: "a.b", Port: new(int32(65536))},
				Group:   "metrics.k8s.io", TLS: SourceTLS{CA: secretKeyNamed("ca", "a b"), InsecureSkipVerify: true},
			}}
		}, want: []string{
			"sources[0].metricsAPI.service.namespace", "sources[0].metricsAPI.service.name", "sources[0].metricsAPI.service.port",
			"sources[0].metricsAPI.group", "sources[0].metricsAPI.tls.ca.key", "sources[0].metricsAPI.tls.ca",
		}},
		"both kinds": {change: func(spec *MetricsBackendSpec, _ *PrometheusSource) {
			spec.Sources[0].MetricsAPI = &MetricsAPISource{}
		}, want: []string{"sources[0]"}, messages: []string{"set either prometheus with its url, or metricsAPI"}},
		"routes are not looked into": {change: func(spec *MetricsBackendSpec, _ *PrometheusSource) {
			spec.CustomMetrics.Routes = []MetricRoute{{}, {Source: "nobody", Own: &OwnMetrics{}}, {Match: RouteMatch{Metrics: []string{"a"}, MetricRegexp: "("}}}
		}},
		"too many routes": {change: func(spec *MetricsBackendSpec, _ *PrometheusSource) {
			spec.CustomMetrics.Routes = make([]MetricRoute, MaxRoutes+1)
			spec.ExternalMetrics = &ExternalMetricsSpec{Routes: make([]MetricRoute, MaxRoutes+1)}
			SetDefaults(spec)
		}, want: []string{"customMetrics.routes", "externalMetrics.routes"}},

		"a user in the URL": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) { p.URL = "https://u:" + secret + "@host" }, want: []string{"sources[0].prometheus.url"}},
		"no URL":            {change: func(_ *MetricsBackendSpec, p *PrometheusSource) { p.URL = "" }, want: []string{"sources[0].prometheus.url"}},
		"another scheme":    {change: func(_ *MetricsBackendSpec, p *PrometheusSource) { p.URL = "ftp://host" }, want: []string{"sources[0].prometheus.url"}},
		"a query":           {change: func(_ *MetricsBackendSpec, p *PrometheusSource) { p.URL = "https://host?x=y" }, want: []string{"sources[0].prometheus.url"}},
		"a bare query":      {change: func(_ *MetricsBackendSpec, p *PrometheusSource) { p.URL = "https://host?" }, want: []string{"sources[0].prometheus.url"}},

		"longest of all": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.Interval, p.Timeout, p.SeriesInterval, p.SeriesMaxAge, p.MaxResponseSize = seconds(3600), seconds(60), seconds(3600), seconds(24*3600), "256Mi"
		}},
		"too long": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.Interval, p.Timeout, p.SeriesInterval, p.SeriesMaxAge, p.MaxResponseSize = seconds(3601), seconds(61), seconds(3601), seconds(24*3600+1), "257Mi"
		}, want: []string{
			"sources[0].prometheus.interval", "sources[0].prometheus.timeout", "sources[0].prometheus.seriesInterval",
			"sources[0].prometheus.seriesMaxAge", "sources[0].prometheus.maxResponseSize",
		}},
		"too short": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.Interval, p.Timeout, p.SeriesInterval, p.MaxResponseSize = seconds(0), seconds(0), seconds(4), "63Ki"
		}, want: []string{
			"sources[0].prometheus.interval", "sources[0].prometheus.timeout", "sources[0].prometheus.seriesInterval", "sources[0].prometheus.maxResponseSize",
		}},
		"a gap between looks": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) { p.SeriesMaxAge = seconds(59) }, want: []string{"sources[0].prometheus.seriesMaxAge"}},

		"an unknown policy": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) { p.PartialResponse = "Warn" }, want: []string{"sources[0].prometheus.partialResponse"}},
		"TLS with http":     {change: func(_ *MetricsBackendSpec, p *PrometheusSource) { p.URL, p.TLS.ServerName = "http://host", "x" }, want: []string{"sources[0].prometheus.tls"}},
		"CA that is not looked at": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.TLS.CA, p.TLS.InsecureSkipVerify = secretKeyNamed("ca", "ca.crt"), true
		}, want: []string{"sources[0].prometheus.tls.ca"}},
		"CA in a ConfigMap": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.TLS.CAConfigMap = &ConfigMapKeyReference{Name: "trust-bundle", Key: "ca-bundle.pem"}
		}},
		"CAs in both": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.TLS.CA, p.TLS.CAConfigMap = secretKeyNamed("ca", "ca.crt"), &ConfigMapKeyReference{Name: "ca", Key: "ca.crt"}
		}, want: []string{"sources[0].prometheus.tls.caConfigMap"}},
		"ConfigMap that is not looked at": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.TLS.CAConfigMap, p.TLS.InsecureSkipVerify = &ConfigMapKeyReference{Name: "ca", Key: "ca.crt"}, true
		}, want: []string{"sources[0].prometheus.tls.caConfigMap"}},
		"ConfigMap's name and key": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.TLS.CAConfigMap = &ConfigMapKeyReference{Name: "../x", Key: "a b"}
		}, want: []string{"sources[0].prometheus.tls.caConfigMap.name", "sources[0].prometheus.tls.caConfigMap.key"}},
		"names of Secrets": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.TLS.CA, p.TLS.ClientCertificate = secretKeyNamed("A", "a b"), &SecretReference{Name: "../x"}
		}, want: []string{"sources[0].prometheus.tls.ca.name", "sources[0].prometheus.tls.ca.key", "sources[0].prometheus.tls.clientCertificate.name"}},
		"two ways to authenticate": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.Authentication = SourceAuthentication{BearerToken: secretKeyNamed("t", "t"), Basic: &SecretReference{Name: "t"}}
		}, want: []string{"sources[0].prometheus.authentication"}},
		"a token of the ServiceAccount": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.Authentication.ServiceAccountToken = &SourceServiceAccountToken{}
		}},
		"a client of an authorization server": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.Authentication.OAuth2 = &SourceOAuth2{TokenURL: "https://login.example/token", Client: SecretReference{Name: "client"}}
		}},
		"a client without protection": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.Authentication.OAuth2 = &SourceOAuth2{TokenURL: "http://login.example/token", Client: SecretReference{Name: "A"}}
		}, want: []string{"sources[0].prometheus.authentication.oauth2.tokenURL", "sources[0].prometheus.authentication.oauth2.client.name"}},
		"two kinds of tokens": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.Authentication = SourceAuthentication{ServiceAccountToken: &SourceServiceAccountToken{}, BearerToken: secretKeyNamed("t", "t")}
		}, want: []string{"sources[0].prometheus.authentication"}},
		"a header besides": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.Authentication.Basic, p.Headers = &SecretReference{Name: "t"}, []SourceHeader{{Name: "authorization", ValueFrom: secretKeyNamed("t", "t")}}
		}, want: []string{"sources[0].prometheus.authentication"}},
		"credentials that everybody sees": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.Headers = []SourceHeader{{Name: "X-Scope-OrgID", Value: "team"}}
			for _, name := range []string{"authorization", "PROXY-AUTHORIZATION", "cookie", "X-API-Key", "api-key", "apikey", "X-Auth-Token"} {
				p.Headers = append(p.Headers, SourceHeader{Name: name, Value: secret})
			}
		}, want: []string{
			"sources[0].prometheus.headers[1].value", "sources[0].prometheus.headers[2].value", "sources[0].prometheus.headers[3].value",
			"sources[0].prometheus.headers[4].value", "sources[0].prometheus.headers[5].value", "sources[0].prometheus.headers[6].value",
			"sources[0].prometheus.headers[7].value",
		}},
		"headers": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.Headers = []SourceHeader{
				{Name: "X-A", Value: "a"}, {Name: "x-a", Value: "b"}, {Name: "host", Value: "c"}, {Name: "a b", Value: "d"},
				{Name: "X-B", Value: secret + "\n"}, {Name: "X-C", Value: "c", ValueFrom: secretKeyNamed("s", "k")},
				{Name: "keep-alive", Value: "d"}, {Name: "Proxy-Connection", Value: "e"},
			}
		}, want: []string{
			"sources[0].prometheus.headers[1].name", "sources[0].prometheus.headers[2].name", "sources[0].prometheus.headers[3].name",
			"sources[0].prometheus.headers[4].value", "sources[0].prometheus.headers[5]",
			"sources[0].prometheus.headers[6].name", "sources[0].prometheus.headers[7].name",
		}},
		"parameters": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.QueryParameters = []SourceQueryParameter{
				{Name: "extra_label", Value: "a=b"}, {Name: "extra_label", Value: "c=d"}, {Name: "storeMatch[]", Value: `{a="b"}`}, {Name: "Query", Value: "x"},
				{Name: "extra_label", Value: "a=b"}, {Name: "a b", Value: "x"}, {Name: "a&query", Value: "x"}, {Name: "dedup"},
			}
			for _, name := range []string{"query", "time", "timeout", "match", "match[]", "start", "end", "limit"} {
				p.QueryParameters = append(p.QueryParameters, SourceQueryParameter{Name: name, Value: "x"})
			}
		}, want: []string{
			"sources[0].prometheus.queryParameters[4]", "sources[0].prometheus.queryParameters[5].name",
			"sources[0].prometheus.queryParameters[6].name", "sources[0].prometheus.queryParameters[7].value",
			"sources[0].prometheus.queryParameters[8].name", "sources[0].prometheus.queryParameters[9].name",
			"sources[0].prometheus.queryParameters[10].name", "sources[0].prometheus.queryParameters[11].name",
			"sources[0].prometheus.queryParameters[12].name", "sources[0].prometheus.queryParameters[13].name",
			"sources[0].prometheus.queryParameters[14].name", "sources[0].prometheus.queryParameters[15].name",
		}},
		"namespaces": {change: func(_ *MetricsBackendSpec, p *PrometheusSource) {
			p.Tenancy.UnconfinedNamespaces = []string{"*", "a", "a*"}
		}, want: []string{"sources[0].prometheus.tenancy.unconfinedNamespaces[2]"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &MetricsBackendSpec{
				CustomMetrics: &CustomMetricsSpec{},
				Sources:       []SourceSpec{{Name: "main", Prometheus: &PrometheusSource{URL: "https://prometheus.example.com:9090/prefix"}}},
			}
			SetDefaults(spec)
			if tc.change != nil {
				tc.change(spec, spec.Sources[0].Prometheus)
			}
			errs := Validate(spec)
			var got []string
			for _, err := range errs {
				got = append(got, strings.TrimPrefix(err.Field, "spec."))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("fields (-want +got):\n%s\n%v", diff, errs.ToAggregate())
			}
			if len(errs) > 0 && strings.Contains(errs.ToAggregate().Error(), secret) {
				t.Errorf("the errors hold a credential: %v", errs.ToAggregate())
			}
			for _, message := range tc.messages {
				if !strings.Contains(errs.ToAggregate().Error(), message) {
					t.Errorf("errors %q, want %q in them", errs.ToAggregate(), message)
				}
			}
		})
	}
}

func TestSourceConfigMaps(t *testing.T) {
	bundle := func(name string) *PrometheusSource {
		return &PrometheusSource{TLS: SourceTLS{CAConfigMap: &ConfigMapKeyReference{Name: name, Key: "ca.crt"}}}
	}
	adapter := SourceSpec{Name: "adapter", MetricsAPI: &MetricsAPISource{TLS: bundle("api").TLS}}
	sources := []SourceSpec{{Name: "none"}, adapter, {Name: "b", Prometheus: bundle("b")}, {Name: "a", Prometheus: bundle("a")}, {Name: "again", Prometheus: bundle("b")}, {Name: "Secret", Prometheus: &PrometheusSource{TLS: SourceTLS{CA: secretKeyNamed("c", "ca.crt")}}}}
	extra := &ConfigMapKeyReference{Name: "extra", Key: "ca.crt"}
	got := [][]string{SourceConfigMaps(sources, nil), SourceConfigMaps(sources, extra), SourceConfigMaps(nil, extra)}
	if diff := cmp.Diff([][]string{{"a", "api", "b"}, {"a", "api", "b", "extra"}, nil}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSourceSecrets(t *testing.T) {
	sources := []SourceSpec{
		{Name: "none"},
		{Name: "all", Prometheus: &PrometheusSource{
			TLS:            SourceTLS{CA: secretKeyNamed("z", "ca.crt"), ClientCertificate: &SecretReference{Name: "client"}},
			Authentication: SourceAuthentication{Basic: &SecretReference{Name: "basic"}},
			Headers:        []SourceHeader{{Name: "A", Value: "b"}, {Name: "B", ValueFrom: secretKeyNamed("z", "header")}},
		}},
		{Name: "token", Prometheus: &PrometheusSource{Authentication: SourceAuthentication{BearerToken: secretKeyNamed("a", "token")}}},
		{Name: "keda", MetricsAPI: &MetricsAPISource{TLS: SourceTLS{CA: secretKeyNamed("kedaorg-certs", "ca.crt"), ClientCertificate: &SecretReference{Name: "client"}}}},
	}
	if diff := cmp.Diff([]string{"a", "basic", "client", "kedaorg-certs", "z"}, SourceSecrets(sources)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := SourceSecrets(sources[:1]); len(got) > 0 {
		t.Errorf("Secrets %v of a source without any", got)
	}
}

func TestRuleInterval(t *testing.T) {
	tests := map[RuleInterval]struct {
		want time.Duration
		err  string
	}{
		"":      {want: 15 * time.Second},
		"1s":    {want: time.Second},
		"1h":    {want: time.Hour},
		"1m30s": {want: 90 * time.Second},
		"61m":   {err: `"61m" must be a duration such as 30s, between 1s and 1h0m0s`},
		"0s":    {err: "must be a duration"},
		"-1s":   {err: "must be a duration"},
		"soon":  {err: `"soon" must be a duration`},
		"1d":    {err: "must be a duration"},
	}
	for interval, tc := range tests {
		got, err := interval.Duration(15 * time.Second)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%q is %s, %v, want %s, %q", interval, got, err, tc.want, tc.err)
		}
	}
}
