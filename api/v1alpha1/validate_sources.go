// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits, as in the CRD's schema.
const (
	// MaxSources is the maximum number of spec.sources.
	MaxSources = 32
	// MaxRoutes is the maximum number of routes in customMetrics, and in externalMetrics.
	MaxRoutes = 100
	// MaxRules is the maximum number of rules in customMetrics, and in externalMetrics.
	MaxRules = 1000
	// MinMaxResponseSize and MaxMaxResponseSize limit prometheus.maxResponseSize.
	MinMaxResponseSize = "64Ki"
	MaxMaxResponseSize = "256Mi"
	// MinInterval and MaxInterval limit the time between two evaluations.
	MinInterval = time.Second
	MaxInterval = time.Hour
)

// dataKey is the pattern of the keys of Secrets and ConfigMaps.
var dataKey = regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`)

// ownHeaders are the headers that the HTTP client sets itself, in canonical form.
var ownHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host",
	"Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent",
}

// credentialHeaders are headers whose value is always a credential, in canonical form.
var credentialHeaders = []string{"Api-Key", "Apikey", "Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key", "X-Auth-Token"}

// reservedParameters are those that serving sets itself, in any spelling that a server knows,
// and limit, with which a server returns only some of the samples or series.
var reservedParameters = []string{"end", "limit", "match", "match[]", "query", "start", "time", "timeout"}

// parameterName is the pattern of the names of parameters.
var parameterName = regexp.MustCompile(`^[-._a-zA-Z0-9]{1,126}(\[\])?$`)

// IsCredentialHeader reports whether a header's value must come from a Secret.
func IsCredentialHeader(name string) bool {
	return slices.Contains(credentialHeaders, http.CanonicalHeaderKey(name))
}

// validateCustomMetrics ignores the contents of rules, which are validated separately.
func validateCustomMetrics(path *field.Path, spec *MetricsBackendSpec) field.ErrorList {
	cm := spec.CustomMetrics
	if cm == nil {
		return nil
	}
	errs := needsSource(path, spec)
	errs = append(errs, oneOf(path.Child("versions"), cm.Versions, CustomMetricsV1beta2, CustomMetricsV1beta1)...)
	errs = append(errs, unique(path.Child("versions"), cm.Versions)...)
	errs = append(errs, atMost(path.Child("routes"), len(cm.Routes), MaxRoutes)...)
	return append(errs, atMost(path.Child("rules"), len(cm.Rules), MaxRules)...)
}

func validateExternalMetrics(path *field.Path, spec *MetricsBackendSpec) field.ErrorList {
	em := spec.ExternalMetrics
	if em == nil {
		return nil
	}
	errs := needsSource(path, spec)
	errs = append(errs, oneOf(path.Child("versions"), em.Versions, ExternalMetricsV1beta1)...)
	errs = append(errs, unique(path.Child("versions"), em.Versions)...)
	errs = append(errs, atMost(path.Child("routes"), len(em.Routes), MaxRoutes)...)
	return append(errs, atMost(path.Child("rules"), len(em.Rules), MaxRules)...)
}

// needsSource returns an error if serving has no source.
func needsSource(path *field.Path, spec *MetricsBackendSpec) field.ErrorList {
	if spec.Existing != nil || len(spec.Sources) > 0 {
		return nil
	}
	return field.ErrorList{field.Required(field.NewPath("spec", "sources"), path.String()+" needs at least one source that its metrics come from")}
}

func atMost(path *field.Path, n, most int) field.ErrorList {
	if n > most {
		return field.ErrorList{field.TooMany(path, n, most)}
	}
	return nil
}

func validateSources(path *field.Path, sources []SourceSpec) field.ErrorList {
	errs := atMost(path, len(sources), MaxSources)
	names := make([]string, 0, len(sources))
	for i := range sources {
		source, path := &sources[i], path.Index(i)
		errs = append(errs, validateName(path.Child("name"), source.Name, validation.IsDNS1123Label)...)
		if slices.Contains(names, source.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), source.Name))
		}
		names = append(names, source.Name)
		switch {
		case (source.Prometheus == nil) == (source.MetricsAPI == nil):
			errs = append(errs, field.Required(path, "each source needs one kind of source: set either prometheus with its url, or metricsAPI with the Service of another implementation"))
		case source.Prometheus != nil:
			errs = append(errs, validatePrometheus(path.Child("prometheus"), source.Prometheus)...)
		default:
			errs = append(errs, validateMetricsAPI(path.Child("metricsAPI"), source.MetricsAPI)...)
		}
	}
	return errs
}

func validateMetricsAPI(path *field.Path, m *MetricsAPISource) field.ErrorList {
	errs := validateService(path.Child("service"), &m.Service)
	if port := *m.Service.Port; port < 1 || port > 65535 {
		errs = append(errs, field.Invalid(path.Child("service", "port"), port, "must be between 1 and 65535"))
	}
	errs = append(errs, oneOf(path.Child("group"), []MetricsAPIGroup{m.Group}, CustomMetricsGroup, ExternalMetricsGroup)...)
	return append(errs, validateSourceTLS(path.Child("tls"), &m.TLS)...)
}

func validatePrometheus(path *field.Path, p *PrometheusSource) field.ErrorList {
	errs := validateURL(path.Child("url"), p.URL)
	errs = append(errs, inRange(path.Child("interval"), p.Interval, MinInterval, MaxInterval)...)
	errs = append(errs, inRange(path.Child("timeout"), p.Timeout, 100*time.Millisecond, time.Minute)...)
	errs = append(errs, inRange(path.Child("seriesInterval"), p.SeriesInterval, 5*time.Second, time.Hour)...)
	errs = append(errs, inRange(path.Child("seriesMaxAge"), p.SeriesMaxAge, p.SeriesInterval.Duration, 24*time.Hour)...)
	if _, err := p.MaxResponseBytes(); err != nil {
		errs = append(errs, field.Invalid(path.Child("maxResponseSize"), p.MaxResponseSize, err.Error()))
	}
	if p.TLS != (SourceTLS{}) && strings.HasPrefix(p.URL, "http:") {
		errs = append(errs, field.Forbidden(path.Child("tls"), "has an effect with an https:// URL only: correct the url, or take tls out"))
	}
	if p.PartialResponse != PartialResponseReject && p.PartialResponse != PartialResponseAccept {
		errs = append(errs, field.NotSupported(path.Child("partialResponse"), p.PartialResponse, []PartialResponsePolicy{PartialResponseReject, PartialResponseAccept}))
	}
	errs = append(errs, validateSourceTLS(path.Child("tls"), &p.TLS)...)
	errs = append(errs, validateAuthentication(path.Child("authentication"), p)...)
	errs = append(errs, validateHeaders(path.Child("headers"), p.Headers)...)
	errs = append(errs, validateQueryParameters(path.Child("queryParameters"), p.QueryParameters)...)
	for i, namespace := range p.Tenancy.UnconfinedNamespaces {
		if namespace != "*" {
			errs = append(errs, validateName(path.Child("tenancy", "unconfinedNamespaces").Index(i), namespace, validation.IsDNS1123Label)...)
		}
	}
	return errs
}

// MaxResponseBytes returns maxResponseSize in bytes, or an error that says which values
// are valid.
func (p *PrometheusSource) MaxResponseBytes() (int64, error) {
	wrong := fmt.Errorf("must be a number of bytes, with Ki or Mi for a larger unit, between %s and %s", MinMaxResponseSize, MaxMaxResponseSize)
	if !bodySize.MatchString(p.MaxResponseSize) {
		return 0, wrong
	}
	size, err := resource.ParseQuantity(p.MaxResponseSize)
	if err != nil || size.Cmp(resource.MustParse(MinMaxResponseSize)) < 0 || size.Cmp(resource.MustParse(MaxMaxResponseSize)) > 0 {
		return 0, wrong
	}
	return size.Value(), nil
}

// validateURL returns errors without the URL, which may contain a password.
func validateURL(path *field.Path, text string) field.ErrorList {
	if isURL(text, "http", "https") {
		return nil
	}
	return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "must be http:// or https://, a host, and optionally a port and the path before /api/v1, without user, query and fragment: "+
		"credentials belong into authentication, a tenant into headers")}
}

// isURL reports whether a text is a URL with one of the schemes and a host, and without user,
// query and fragment.
func isURL(text string, schemes ...string) bool {
	u, err := url.Parse(text)
	return err == nil && slices.Contains(schemes, u.Scheme) && u.Host != "" && u.User == nil && !strings.ContainsAny(text, "?#")
}

func validateSourceTLS(path *field.Path, tls *SourceTLS) field.ErrorList {
	errs := validateSecretKey(path.Child("ca"), tls.CA)
	errs = append(errs, validateSecret(path.Child("clientCertificate"), tls.ClientCertificate)...)
	if tls.CA != nil && tls.InsecureSkipVerify {
		errs = append(errs, field.Forbidden(path.Child("ca"), "has no effect with insecureSkipVerify: remove one of them"))
	}
	if ref := tls.CAConfigMap; ref != nil {
		path := path.Child("caConfigMap")
		errs = append(errs, validateName(path.Child("name"), ref.Name, validation.IsDNS1123Subdomain)...)
		errs = append(errs, validateKey(path.Child("key"), ref.Key, "ConfigMap")...)
		if tls.CA != nil || tls.InsecureSkipVerify {
			errs = append(errs, field.Forbidden(path, "excludes ca and insecureSkipVerify: keep one of them"))
		}
	}
	return errs
}

func validateAuthentication(path *field.Path, p *PrometheusSource) field.ErrorList {
	auth := &p.Authentication
	if *auth == (SourceAuthentication{}) {
		return nil
	}
	errs := validateSecretKey(path.Child("bearerToken"), auth.BearerToken)
	errs = append(errs, validateSecret(path.Child("basic"), auth.Basic)...)
	unset := []bool{auth.BearerToken == nil, auth.Basic == nil, auth.ServiceAccountToken == nil, auth.OAuth2 == nil}
	if len(slices.DeleteFunc(unset, func(is bool) bool { return is })) != 1 {
		errs = append(errs, field.Forbidden(path, "needs exactly one of bearerToken, basic, serviceAccountToken and oauth2"))
	}
	if o := auth.OAuth2; o != nil {
		if !isURL(o.TokenURL, "https") {
			errs = append(errs, field.Invalid(path.Child("oauth2", "tokenURL"), field.OmitValueType{}, "must be https:// and a host, without user, query and fragment"))
		}
		errs = append(errs, validateSecret(path.Child("oauth2", "client"), &o.Client)...)
	}
	if slices.ContainsFunc(p.Headers, func(h SourceHeader) bool { return http.CanonicalHeaderKey(h.Name) == "Authorization" }) {
		errs = append(errs, field.Forbidden(path, "excludes a header named Authorization: remove one of them"))
	}
	return errs
}

func validateHeaders(path *field.Path, headers []SourceHeader) field.ErrorList {
	errs := atMost(path, len(headers), 32)
	var names []string
	for i, header := range headers {
		path, name := path.Index(i), http.CanonicalHeaderKey(header.Name)
		switch {
		case !httpguts.ValidHeaderFieldName(header.Name):
			errs = append(errs, field.Invalid(path.Child("name"), header.Name, "must be a header's name"))
		case slices.Contains(ownHeaders, name):
			errs = append(errs, field.Forbidden(path.Child("name"), "this header is set by the client itself: take it out of headers"))
		case slices.Contains(names, name):
			errs = append(errs, field.Duplicate(path.Child("name"), header.Name))
		}
		names = append(names, name)
		// The error omits the value, which may be confidential.
		if !httpguts.ValidHeaderFieldValue(header.Value) {
			errs = append(errs, field.Invalid(path.Child("value"), field.OmitValueType{}, "must hold no line ends and control characters"))
		}
		if header.Value != "" && IsCredentialHeader(name) {
			errs = append(errs, field.Forbidden(path.Child("value"), "everyone who can read MetricsBackends would see this header's credentials: put the value into a Secret and name it in valueFrom"))
		}
		if header.Value != "" && header.ValueFrom != nil {
			errs = append(errs, field.Forbidden(path, "needs value or valueFrom, and not both"))
		}
		errs = append(errs, validateSecretKey(path.Child("valueFrom"), header.ValueFrom)...)
	}
	return errs
}

func validateQueryParameters(path *field.Path, parameters []SourceQueryParameter) field.ErrorList {
	errs := atMost(path, len(parameters), 32)
	for i, p := range parameters {
		path := path.Index(i)
		switch {
		case !parameterName.MatchString(p.Name):
			errs = append(errs, field.Invalid(path.Child("name"), p.Name, "must be letters, digits, '-', '_' and '.', and may end with []"))
		case slices.Contains(reservedParameters, p.Name):
			errs = append(errs, field.Forbidden(path.Child("name"), "this parameter is set by serving itself, or would cut results: take it out of queryParameters"))
		case slices.Contains(parameters[:i], p):
			errs = append(errs, field.Duplicate(path, p.Name))
		}
		if p.Value == "" {
			errs = append(errs, field.Required(path.Child("value"), "a parameter needs a value"))
		}
	}
	return errs
}

func validateSecret(path *field.Path, reference *SecretReference) field.ErrorList {
	if reference == nil {
		return nil
	}
	return validateName(path.Child("name"), reference.Name, validation.IsDNS1123Subdomain)
}

func validateSecretKey(path *field.Path, reference *SecretKeyReference) field.ErrorList {
	if reference == nil {
		return nil
	}
	return append(validateSecret(path, &reference.SecretReference), validateKey(path.Child("key"), reference.Key, "Secret")...)
}

func validateKey(path *field.Path, key, kind string) field.ErrorList {
	if dataKey.MatchString(key) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, key, "must be a key of a "+kind+": letters, digits, '-', '_' and '.'")}
}

// Duration returns the duration, or fallback if it is empty. The error says which values
// are valid; it belongs to the rule, not to the whole spec.
func (i RuleInterval) Duration(fallback time.Duration) (time.Duration, error) {
	if i == "" {
		return fallback, nil
	}
	interval, err := time.ParseDuration(string(i))
	if err != nil || interval < MinInterval || interval > MaxInterval {
		return 0, fmt.Errorf("%q must be a duration such as 30s, between %s and %s", i, MinInterval, MaxInterval)
	}
	return interval, nil
}

// Validate returns an error if the policy is invalid. Empty means InvalidValuesReject.
func (p InvalidValuesPolicy) Validate() error {
	if p == "" || p == InvalidValuesReject || p == InvalidValuesOmit {
		return nil
	}
	return fmt.Errorf("invalidValues is %q: it must be Reject or Omit", p)
}

// Known reports whether the policy is valid. Empty means DuplicatesReject.
func (p DuplicatesPolicy) Known() bool {
	switch p {
	case "", DuplicatesReject, DuplicatesSum, DuplicatesAverage, DuplicatesMinimum, DuplicatesMaximum:
		return true
	}
	return false
}
