// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Each rule of the schema on sources, and on what needs one.
func TestValidationOfSources(t *testing.T) {
	suite := take(t)
	prometheus := func(fields string) string {
		return "{customMetrics: {}, sources: [{name: main, prometheus: {" + fields + "}}]}"
	}
	const existing = ", existing: {service: {namespace: a, name: b}, insecureSkipTLSVerify: true}}"
	const none = "{containerQuery: '', resources: {}, containerLabel: ''}"
	const good = "{name: main, prometheus: {url: 'http://prometheus.monitoring.svc:9090'}}"
	https := func(fields string) string { return prometheus("url: 'https://p', " + fields) }
	http := func(fields string) string { return prometheus("url: 'http://p', " + fields) }
	metricsAPI := func(fields string) string {
		return "{externalMetrics: {}, sources: [{name: keda, metricsAPI: {" + fields + "}}]}"
	}
	const keda = "service: {namespace: keda, name: keda-operator-metrics-apiserver}, group: external.metrics.k8s.io"
	routes := func(routes string) string {
		return "{customMetrics: {routes: [" + routes + "]}, externalMetrics: {routes: [" + routes + "]}, sources: [" + good + "]}"
	}
	match := func(fields string) string { return routes("{source: keda, match: {" + fields + "}}") }
	cases := map[string]validationCase{
		"custom metrics alone":            {spec: "{customMetrics: {}, sources: [" + good + "]}"},
		"external metrics alone":          {spec: "{externalMetrics: {}, sources: [" + good + "]}"},
		"all three":                       {spec: "{resourceMetrics: {}, customMetrics: {versions: [v1beta1]}, externalMetrics: {versions: [v1beta1]}, sources: [" + good + "]}"},
		"sources without a use":           {spec: "{resourceMetrics: {}, sources: [" + good + "]}"},
		"custom without a source":         {spec: "{customMetrics: {}}", refused: "spec.customMetrics needs at least one source"},
		"external without a source":       {spec: "{externalMetrics: {}, sources: []}", refused: "spec.externalMetrics needs at least one source"},
		"resource rules without a source": {spec: "{resourceMetrics: {rules: {cpu: " + none + ", memory: " + none + "}}}", refused: "spec.resourceMetrics.rules need a source"},
		"custom of an existing server": {
			spec: "{customMetrics: {}" + existing,
		},
		"sources for an existing server":       {spec: "{customMetrics: {}, sources: [" + good + "]" + existing, refused: "with spec.existing nothing is queried here"},
		"rules for an existing server":         {spec: "{externalMetrics: {rules: [{seriesQuery: up}]}" + existing, refused: "with spec.existing nothing is queried here"},
		"its empty lists":                      {spec: "{customMetrics: {rules: [], routes: []}, externalMetrics: {rules: []}, sources: []" + existing},
		"custom rules for it":                  {spec: "{customMetrics: {rules: [{seriesQuery: up}]}" + existing, refused: "with spec.existing nothing is queried here"},
		"external routes for it":               {spec: "{externalMetrics: {routes: [{own: {}}]}" + existing, refused: "with spec.existing nothing is queried here"},
		"resource rules for it":                {spec: "{resourceMetrics: {rules: {cpu: " + none + ", memory: " + none + "}}" + existing, refused: "with spec.existing nothing is queried here"},
		"route of an empty list":               {spec: match("metrics: []"), refused: "should have at least 1 items"},
		"route of an empty name":               {spec: routes("{source: ''}"), refused: "should be at least 1 chars long"},
		"version to remove that nobody serves": {spec: "{resourceMetrics: {}, removeDespiteConsumers: [v1beta1]}", refused: "removeDespiteConsumers[0]: Unsupported value"},
		"versions to remove":                   {spec: "{resourceMetrics: {}, removeDespiteConsumers: [v1.metrics.k8s.io, v1beta1.external.metrics.k8s.io]}"},
		"the same header twice":                {spec: "{customMetrics: {}, sources: [{name: a, prometheus: {url: 'http://p', headers: [{name: A, value: a}, {name: a, value: b}]}}]}", refused: "the same name twice, whatever its case"},
		"routes for an existing server":        {spec: "{customMetrics: {routes: [{own: {}}]}" + existing, refused: "with spec.existing nothing is queried here"},
		"unknown custom version":               {spec: "{customMetrics: {versions: [v1]}, sources: [" + good + "]}", refused: `supported values: "v1beta2", "v1beta1"`},
		"unknown external version":             {spec: "{externalMetrics: {versions: [v1beta2]}, sources: [" + good + "]}", refused: `supported values: "v1beta1"`},
		"no custom version":                    {spec: "{customMetrics: {versions: []}, sources: [" + good + "]}", refused: "should have at least 1 items"},

		"the same source twice": {spec: "{customMetrics: {}, sources: [" + good + "," + good + "]}", refused: "Duplicate value"},
		"source of no kind":     {spec: "{customMetrics: {}, sources: [{name: a}]}", refused: "needs one kind of source"},
		"malformed name":        {spec: "{customMetrics: {}, sources: [{name: A, prometheus: {url: 'http://p'}}]}", refused: "name"},

		"another implementation":         {spec: metricsAPI(keda)},
		"another one with a CA":          {spec: metricsAPI(keda + ", tls: {caSecretKeyRef: {name: kedaorg-certs, key: ca.crt}}")},
		"another one without check":      {spec: metricsAPI(keda + ", tls: {insecureSkipTLSVerify: true}")},
		"CA of one without check":        {spec: metricsAPI(keda + ", tls: {caSecretKeyRef: {name: ca, key: ca.crt}, insecureSkipTLSVerify: true}"), refused: "exclude each other"},
		"source of both kinds":           {spec: "{externalMetrics: {}, sources: [{name: a, prometheus: {url: 'http://p'}, metricsAPI: {" + keda + "}}]}", refused: "needs one kind of source"},
		"another one without a Service":  {spec: metricsAPI("group: external.metrics.k8s.io"), refused: "service"},
		"another one without a group":    {spec: metricsAPI("service: {namespace: a, name: b}"), refused: "group"},
		"another one of another group":   {spec: metricsAPI("service: {namespace: a, name: b}, group: metrics.k8s.io"), refused: `supported values: "custom.metrics.k8s.io", "external.metrics.k8s.io"`},
		"another one with a port of 0":   {spec: metricsAPI("service: {namespace: a, name: b, port: 0}, group: custom.metrics.k8s.io"), refused: "service.port"},
		"routes":                         {spec: routes("{own: {}}, {source: keda}, {source: keda, match: {}}")},
		"route to both":                  {spec: routes("{source: keda, own: {}}"), refused: "each of routes needs either source or own: {}"},
		"route to neither":               {spec: routes("{match: {metrics: [a]}}"), refused: "each of routes needs either source or own: {}"},
		"route by all":                   {spec: match("metrics: [a, b], namespaces: [c], selector: {key: scaledobject.keda.sh/name, values: [d, '']}")},
		"route by a regexp":              {spec: match("metricRegexp: 's[0-9]+-.*'")},
		"route by names and a regexp":    {spec: match("metrics: [a], metricRegexp: b"), refused: "match by metrics or by metricRegexp, not both"},
		"route by a name twice":          {spec: match("metrics: [a, a]"), refused: "Duplicate value"},
		"route by a malformed namespace": {spec: match("namespaces: [A]"), refused: "namespaces"},
		"route by a selector of no key":  {spec: match("selector: {values: [a]}"), refused: "key"},
		"most routes":                    {spec: routes(strings.TrimSuffix(strings.Repeat("{source: keda}, ", 100), ", "))},
		"too many routes":                {spec: routes(strings.TrimSuffix(strings.Repeat("{source: keda}, ", 101), ", ")), refused: "routes: Too many"},
		// Judged one by one, as rules are.
		"routes that are wrong": {spec: routes("{source: nobody}, {source: main, match: {metricRegexp: '('}}, {own: {}}, {own: {}}")},

		"https with a path":     {spec: prometheus("url: 'https://mimir.example:8443/prometheus'")},
		"IPv6":                  {spec: prometheus("url: 'http://[2001:db8::1]:9090'")},
		"another scheme":        {spec: prometheus("url: 'ftp://p'"), refused: "url must be http:// or https://"},
		"no scheme":             {spec: prometheus("url: 'prometheus:9090'"), refused: "url must be http:// or https://"},
		"credentials in URL":    {spec: prometheus("url: 'https://u:p@host'"), refused: "credentials belong into authentication"},
		"query in URL":          {spec: prometheus("url: 'https://host/?a=b'"), refused: "url must be http:// or https://"},
		"no host":               {spec: prometheus("url: 'http:///path'"), refused: "url must be http:// or https://"},
		"no URL":                {spec: prometheus("interval: 1m"), refused: "url"},
		"shortest interval":     {spec: http("interval: 1s")},
		"too short an interval": {spec: http("interval: 999ms"), refused: "interval must be between 1s and 1h"},
		"too long an interval":  {spec: http("interval: 61m"), refused: "interval must be between 1s and 1h"},
		"malformed interval":    {spec: http("interval: soon"), refused: "interval"},
		"too long a timeout":    {spec: http("timeout: 61s"), refused: "timeout must be between 100ms and 1m"},
		"series":                {spec: http("seriesInterval: 5s, seriesLookback: 24h")},
		"too many looks":        {spec: http("seriesInterval: 4s"), refused: "seriesInterval must be between 5s and 1h"},
		"gap between looks":     {spec: http("seriesInterval: 10m"), refused: "seriesLookback must not be shorter than seriesInterval"},
		"series of the past":    {spec: http("seriesLookback: 25h"), refused: "seriesLookback must be at most 24h"},
		"largest answer":        {spec: http("maxResponseSize: 256Mi")},
		"answer in bytes":       {spec: http("maxResponseSize: '65536'")},
		"too large an answer":   {spec: http("maxResponseSize: 5000Mi"), refused: "maxResponseSize must be between 64Ki and 256Mi"},
		"too small an answer":   {spec: http("maxResponseSize: '64'"), refused: "maxResponseSize must be between 64Ki and 256Mi"},
		"answer of no size":     {spec: http("maxResponseSize: large"), refused: "maxResponseSize"},

		"TLS":                        {spec: https("tls: {caSecretKeyRef: {name: ca, key: ca.crt}, clientCertificateSecretRef: {name: client}, serverName: x}")},
		"TLS with http":              {spec: http("tls: {serverName: x}"), refused: "tls has an effect with an https:// URL only"},
		"CA that is not looked at":   {spec: https("tls: {caSecretKeyRef: {name: ca, key: ca.crt}, insecureSkipTLSVerify: true}"), refused: "exclude each other"},
		"CA in a ConfigMap":          {spec: https("tls: {caConfigMapKeyRef: {name: trust-bundle, key: ca-bundle.pem}}")},
		"CAs in both":                {spec: https("tls: {caSecretKeyRef: {name: ca, key: ca.crt}, caConfigMapKeyRef: {name: ca, key: ca.crt}}"), refused: "exclude each other"},
		"ConfigMap not looked at":    {spec: https("tls: {caConfigMapKeyRef: {name: ca, key: ca.crt}, insecureSkipTLSVerify: true}"), refused: "exclude each other"},
		"ConfigMap without a key":    {spec: https("tls: {caConfigMapKeyRef: {name: ca}}"), refused: "key"},
		"CA without a key":           {spec: https("tls: {caSecretKeyRef: {name: ca}}"), refused: "key"},
		"bearer token":               {spec: https("authentication: {bearerTokenSecretKeyRef: {name: t, key: token}}")},
		"basic":                      {spec: https("authentication: {basicAuthSecretRef: {name: t}}")},
		"both":                       {spec: https("authentication: {basicAuthSecretRef: {name: t}, bearerTokenSecretKeyRef: {name: t, key: token}}"), refused: "needs exactly one of bearerTokenSecretKeyRef, basicAuthSecretRef, serviceAccountToken and oauth2"},
		"account's token":            {spec: https("authentication: {serviceAccountToken: {}}")},
		"oauth2":                     {spec: https("authentication: {oauth2: {tokenURL: 'https://login/token', credentialsSecretRef: {name: t}, scopes: [a]}}")},
		"oauth2 with http":           {spec: https("authentication: {oauth2: {tokenURL: 'http://login/token', credentialsSecretRef: {name: t}}}"), refused: "must be https://"},
		"neither":                    {spec: https("authentication: {}"), refused: "needs exactly one of bearerTokenSecretKeyRef, basicAuthSecretRef, serviceAccountToken and oauth2"},
		"headers":                    {spec: http("headers: [{name: X-Scope-OrgID, value: a}, {name: Authorization, valueSecretKeyRef: {name: s, key: k}}]")},
		"header without value":       {spec: http("headers: [{name: A}]"), refused: "needs value or valueSecretKeyRef"},
		"header with two values":     {spec: http("headers: [{name: A, value: b, valueSecretKeyRef: {name: s, key: k}}]"), refused: "needs value or valueSecretKeyRef"},
		"header of the client":       {spec: http("headers: [{name: Content-Type, value: b}]"), refused: "this header is set by the client itself"},
		"header of one hop":          {spec: http("headers: [{name: keep-alive, value: b}]"), refused: "this header is set by the client itself"},
		"partial responses":          {spec: http("partialResponsePolicy: Accept")},
		"unknown policy":             {spec: http("partialResponsePolicy: Warn"), refused: "partialResponsePolicy"},
		"credentials in a header":    {spec: http("headers: [{name: X-API-Key, value: b}]"), refused: "put the value into a Secret and name it in valueSecretKeyRef"},
		"header twice":               {spec: http("headers: [{name: A, value: b}, {name: A, value: c}]"), refused: "Duplicate value"},
		"malformed header":           {spec: http("headers: [{name: 'A: b', value: c}]"), refused: "name"},
		"header of two lines":        {spec: http(`headers: [{name: A, value: "b\nC: d"}]`), refused: "value"},
		"parameters":                 {spec: http(`queryParameters: [{name: latency_offset, value: 1s}, {name: "storeMatch[]", value: a}, {name: "storeMatch[]", value: b}]`)},
		"parameter twice":            {spec: http("queryParameters: [{name: dedup, value: a}, {name: dedup, value: a}]"), refused: "Duplicate value"},
		"parameter without value":    {spec: http("queryParameters: [{name: dedup}]"), refused: "value"},
		"empty parameter":            {spec: http("queryParameters: [{name: dedup, value: ''}]"), refused: "value"},
		"malformed parameter":        {spec: http("queryParameters: [{name: 'a&query', value: b}]"), refused: "name"},
		"the query as a parameter":   {spec: http("queryParameters: [{name: query, value: up}]"), refused: "this parameter is set by serving itself"},
		"selector as a parameter":    {spec: http("queryParameters: [{name: 'match[]', value: up}]"), refused: "this parameter is set by serving itself"},
		"a limit as a parameter":     {spec: http("queryParameters: [{name: limit, value: '1'}]"), refused: "would cut results"},
		"two kinds of authorization": {spec: https("authentication: {basicAuthSecretRef: {name: t}}, headers: [{name: authorization, valueSecretKeyRef: {name: t, key: t}}]"), refused: "exclude each other"},
		"tenancy":                    {spec: http("tenancy: {namespaceLabel: k8s.namespace.name, trustedNamespaces: ['*', monitoring]}")},
		"malformed namespace":        {spec: http("tenancy: {trustedNamespaces: ['a*']}"), refused: "trustedNamespaces"},

		// Rules are judged one by one: none has the whole object refused.
		"rules that are wrong in every way": {spec: `{sources: [` + good + `], customMetrics: {rules: [{seriesQuery: ''}, {seriesQuery: '{{{', source: nobody, ` +
			`interval: soon, duplicatesPolicy: Guess, metricsQuery: '<<.Nothing', seriesFilters: [{}, {is: '('}], name: {matches: '('}, ` +
			`resources: {template: '<<', overrides: {a b: {resource: ''}}}}]}, externalMetrics: {rules: [{seriesQuery: up}]}, ` +
			`resourceMetrics: {rules: {cpu: ` + none + `, memory: ` + none + `, window: never}}}`},
		"rule of no series":           {spec: `{sources: [` + good + `], externalMetrics: {rules: [{name: {as: x}}]}}`, refused: "seriesQuery: Required value"},
		"label of no resource":        {spec: `{sources: [` + good + `], customMetrics: {rules: [{seriesQuery: up, resources: {overrides: {a: {}}}}]}}`, refused: "resource: Required value"},
		"resource rules of CPU alone": {spec: `{sources: [` + good + `], resourceMetrics: {rules: {cpu: ` + none + `}}}`, refused: "memory: Required value"},
		"resource rules of nothing":   {spec: `{sources: [` + good + `], resourceMetrics: {rules: {cpu: {}, memory: ` + none + `}}}`, refused: "containerQuery: Required value"},
		"rule of another language":    {spec: `{sources: [` + good + `], customMetrics: {rules: [{colour: blue}]}}`, refused: "unknown field"},
		"too long a query": {
			spec: `{sources: [` + good + `], customMetrics: {rules: [{metricsQuery: ` + strings.Repeat("x", 16385) + `}]}}`, refused: "metricsQuery",
		},
	}
	validate(t, suite, "MetricsBackend", "", cases)
}

// Each rule of the schema on metrics that teams declare, and on policies.
func TestValidationOfDeclaredMetricsAndPolicies(t *testing.T) {
	suite := take(t)
	external := func(fields string) string { return "{query: up, " + fields + "}" }
	custom := func(fields string) string {
		return "{query: up, describedObject: {resource: pods, nameLabel: pod}, " + fields + "}"
	}
	rules := func(rules string) string { return "{rules: [" + rules + "]}" }
	all := map[string]map[string]validationCase{
		"ExternalMetric": {
			"smallest":             {spec: "{query: up}"},
			"no query":             {spec: "{}", refused: "query"},
			"name with a slash":    {spec: external("metricName: queue/messages")},
			"name with an escape":  {spec: external("metricName: 'a%2Fb'"), refused: "metricName"},
			"name as it is asked":  {spec: external(`metricName: 'queue\|messages'`), refused: "write the slash itself"},
			"name with a question": {spec: external("metricName: 'a?b'"), refused: "metricName"},
			"name of a parent":     {spec: external("metricName: '..'"), refused: "metricName must not be '.' or '..'"},
			"interval":             {spec: external("interval: 30s")},
			"too short":            {spec: external("interval: 1ms"), refused: "interval must be between 1s and 1h"},
			"fixed fallback":       {spec: external("fallback: {value: 500m, afterFailures: 1}")},
			"whole fallback":       {spec: external("fallback: {value: 12}")},
			"negative fallback":    {spec: external("fallback: {value: '-1.5'}")},
			"binary fallback":      {spec: external("fallback: {value: 1Ki}")},
			"fallback in E":        {spec: external("fallback: {value: 1e3}")},
			"no quantity":          {spec: external("fallback: {value: 1e1.5}"), refused: "fallback.value"},
			"endless quantity":     {spec: external("fallback: {value: 1.00000000000000000001e2000000000}"), refused: "fallback.value"},
			"fallback to the last": {spec: external("fallback: {lastValue: {}}")},
			"old fallback":         {spec: external("fallback: {lastValue: {maxAge: 25h}}"), refused: "fallback.lastValue.maxAge must be between 1s and 24h"},
			"both fallbacks":       {spec: external("fallback: {value: 1, lastValue: {}}"), refused: "fallback needs value"},
			"no fallback":          {spec: external("fallback: {}"), refused: "fallback needs value"},
			"no failures":          {spec: external("fallback: {value: 1, afterFailures: 0}"), refused: "afterFailures"},
			"labels":               {spec: external("labels: {example.com/queue: high}")},
			"longest query":        {spec: "{query: " + strings.Repeat("x", 2034) + ", labels: {example.com/a: b}}"},
			"too long a query":     {spec: "{query: " + strings.Repeat("x", 2035) + ", labels: {example.com/a: b}}", refused: "query and labels must have at most 2048 bytes: ask an administrator for a rule"},
			"too long in bytes":    {spec: "{query: " + strings.Repeat("ä", 1025) + "}", refused: "query and labels must have at most 2048 bytes"},
			"too long a label":     {spec: external("labels: {a: " + strings.Repeat("x", 64) + "}"), refused: "labels must be such as Kubernetes' selectors can name"},
			"source":               {spec: external("source: main")},
		},
		"CustomMetric": {
			"of objects by label": {spec: custom("duplicatesPolicy: Sum")},
			"of one object":       {spec: "{query: up, describedObject: {resource: ingresses, group: networking.k8s.io, name: web}}"},
			"of neither":          {spec: "{query: up, describedObject: {resource: pods}}", refused: "describedObject needs name"},
			"of both":             {spec: "{query: up, describedObject: {resource: pods, name: a, nameLabel: b}}", refused: "describedObject needs name"},
			"of nothing":          {spec: "{query: up}", refused: "describedObject"},
			"of a kind":           {spec: "{query: up, describedObject: {resource: Pod, name: a}}", refused: "describedObject.resource"},
			"name with a slash":   {spec: custom("metricName: a/b"), refused: "must not hold a slash"},
			"longest query":       {spec: "{query: " + strings.Repeat("ä", 1024) + ", describedObject: {resource: pods, name: a}}"},
			"too long a query":    {spec: "{query: " + strings.Repeat("x", 2049) + ", describedObject: {resource: pods, name: a}}", refused: "query must have at most 2048 bytes: ask an administrator for a rule"},
			"unknown duplicates":  {spec: custom("duplicatesPolicy: Guess"), refused: `supported values: "Reject"`},
		},
		"ExternalMetricsPolicy": {
			"deny":             {spec: rules("{metric: 'secret_.*', deny: true}")},
			"selector":         {spec: rules("{metric: '.*', selector: {matchLabels: {a: b}}}")},
			"allow":            {spec: rules("{metric: '.*', selector: {}}")},
			"whom":             {spec: "{namespaces: [a], subjects: [{kind: Group, name: g}], rules: [{metric: a, deny: true}]}"},
			"no rules":         {spec: rules(""), refused: "should have at least 1 items"},
			"neither":          {spec: rules("{metric: a}"), refused: "each rule needs selector"},
			"both":             {spec: rules("{metric: a, deny: true, selector: {}}"), refused: "each rule needs selector"},
			"no deny":          {spec: rules("{metric: a, deny: false}"), refused: "each rule needs selector"},
			"malformed regexp": {spec: rules("{metric: '(', deny: true}"), refused: "error parsing regexp"},
			// The schema cannot judge selectors; what they say is in the policy's status.
			"unknown operator": {spec: rules("{metric: a, selector: {matchExpressions: [{key: a, operator: Foo}]}}")},
			"unknown subject":  {spec: "{subjects: [{kind: Robot, name: g}], rules: [{metric: a, deny: true}]}", refused: `supported values: "User", "Group"`},
		},
	}
	for kind, cases := range all {
		namespace := otherNamespace
		if kind == "ExternalMetricsPolicy" {
			namespace = ""
		}
		t.Run(kind, func(t *testing.T) { validate(t, suite, kind, namespace, cases) })
	}
}

// The schema's defaults and those in Go are the same.
func TestDefaultsOfSourcesAndMetrics(t *testing.T) {
	suite := take(t)
	const spec = `
resourceMetrics: {rules: {}}
customMetrics: {rules: [{}]}
externalMetrics: {}
sources:
- {name: main, prometheus: {url: "http://p"}}
- {name: keda, metricsAPI: {service: {namespace: keda, name: keda}, group: external.metrics.k8s.io}}
`
	created := &v1alpha1.MetricsBackend{}
	created.Name = "defaults"
	want := &v1alpha1.MetricsBackend{}
	for _, backend := range []*v1alpha1.MetricsBackend{created, want} {
		if err := yaml.UnmarshalStrict([]byte(spec), &backend.Spec); err != nil {
			t.Fatal(err)
		}
	}
	if err := suite.admin.Create(t.Context(), created, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	v1alpha1.SetDefaults(&want.Spec)
	want.Spec.Serving.Port = nil // the only default that the schema cannot express
	if diff := cmp.Diff(want.Spec, created.Spec); diff != "" {
		t.Errorf("SetDefaults (-) and the CRD (+) differ:\n%s", diff)
	}

	metric := &v1alpha1.CustomMetric{}
	metric.Namespace, metric.Name = otherNamespace, "hits"
	metric.Spec.Query = "up"
	metric.Spec.DescribedObject = v1alpha1.DescribedObjects{Resource: "pods", NameLabel: "pod"}
	metric.Spec.Fallback = &v1alpha1.MetricFallback{LastValue: &v1alpha1.LastValueFallback{}}
	wanted := metric.DeepCopy()
	if err := suite.admin.Create(t.Context(), metric, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	wanted.Spec.DuplicatesPolicy = v1alpha1.DuplicatesReject
	wanted.Spec.Fallback = &v1alpha1.MetricFallback{
		AfterFailures: ptr.To[int32](3), LastValue: &v1alpha1.LastValueFallback{MaxAge: &metav1.Duration{Duration: 10 * time.Minute}},
	}
	if diff := cmp.Diff(wanted.Spec, metric.Spec); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if metric.Status.ObservedGeneration != -1 {
		t.Errorf("observedGeneration %d of a metric that nobody looked at, want -1", metric.Status.ObservedGeneration)
	}
}
