// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// validationCase is an object, and a part of the message with which it is refused; accepted
// ones have none.
type validationCase struct {
	name    string // metadata.name, "valid" unless set
	spec    string // YAML
	refused string
}

// Each rule of the CRD's schema, with what passes it and what does not.
func TestValidation(t *testing.T) {
	suite := take(t)
	labels := func(prefix string) string { return "{serving: {labels: {" + prefix + "team: a}}, resourceMetrics: {}}" }
	scrape := func(fields string) string { return "{resourceMetrics: {scrape: {" + fields + "}}}" }
	watch := func(fields string) string { return "{watch: {" + fields + "}, resourceMetrics: {}}" }
	args := func(arg string) string { return "{serving: {extraArgs: ['" + arg + "']}, resourceMetrics: {}}" }
	// What is between the lines is the operator's to judge.
	ca := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n"))
	cases := map[string]validationCase{
		"the smallest spec": {spec: `{resourceMetrics: {}}`},
		"nothing to serve":  {spec: `{}`, refused: "nothing to serve: set spec.resourceMetrics"},

		"longest name":    {name: strings.Repeat("a", 40), spec: `{resourceMetrics: {}}`},
		"too long a name": {name: strings.Repeat("a", 41), spec: `{resourceMetrics: {}}`, refused: "metadata.name must be at most 40 characters"},
		"name with a dot": {name: "a.b", spec: `{resourceMetrics: {}}`, refused: "metadata.name must be a DNS label"},

		"namespace":                          {spec: `{serving: {namespace: some-namespace}, resourceMetrics: {}}`},
		"empty namespace":                    {spec: `{serving: {namespace: ""}, resourceMetrics: {}}`, refused: "spec.serving.namespace"},
		"malformed namespace":                {spec: `{serving: {namespace: Upper}, resourceMetrics: {}}`, refused: "spec.serving.namespace"},
		"too long a namespace":               {spec: `{serving: {namespace: ` + strings.Repeat("a", 64) + `}, resourceMetrics: {}}`, refused: "spec.serving.namespace"},
		"unknown field":                      {spec: `{resourceMetrics: {}, colour: blue}`, refused: `unknown field "spec.colour"`},
		"both versions":                      {spec: `{resourceMetrics: {versions: [v1beta1, v1]}}`},
		"one version":                        {spec: `{resourceMetrics: {versions: [v1]}}`},
		"unknown version":                    {spec: `{resourceMetrics: {versions: [v2]}}`, refused: `supported values: "v1", "v1beta1"`},
		"the same version twice":             {spec: `{resourceMetrics: {versions: [v1, v1]}}`, refused: "Duplicate value"},
		"no version":                         {spec: `{resourceMetrics: {versions: []}}`, refused: "should have at least 1 items"},
		"maxSampleAge":                       {spec: `{resourceMetrics: {maxSampleAge: 2m30s}}`},
		"maxSampleAge with a fraction":       {spec: `{resourceMetrics: {maxSampleAge: 1.5m}}`},
		"maxSampleAge of a short interval":   {spec: `{resourceMetrics: {maxSampleAge: 31s, scrape: {interval: 1s, timeout: 1s}}}`},
		"too short a maxSampleAge":           {spec: `{resourceMetrics: {maxSampleAge: 30s, scrape: {interval: 1s, timeout: 1s}}}`, refused: "maxSampleAge must be at least 30s longer than scrape.interval"},
		"longest maxSampleAge":               {spec: `{resourceMetrics: {maxSampleAge: 1h}}`},
		"too long a maxSampleAge":            {spec: `{resourceMetrics: {maxSampleAge: 61m}}`, refused: "maxSampleAge must be at most 1h"},
		"maxSampleAge without unit":          {spec: `{resourceMetrics: {maxSampleAge: "90"}}`, refused: "spec.resourceMetrics.maxSampleAge"},
		"negative maxSampleAge":              {spec: `{resourceMetrics: {maxSampleAge: -90s}}`, refused: "spec.resourceMetrics.maxSampleAge"},
		"huge maxSampleAge":                  {spec: `{resourceMetrics: {maxSampleAge: 99999999999999999h}}`, refused: "spec.resourceMetrics.maxSampleAge"},
		"maxSampleAge under interval":        {spec: `{resourceMetrics: {maxSampleAge: 20s, scrape: {interval: 30s}}}`, refused: "maxSampleAge must be at least 30s longer than scrape.interval"},
		"maxSampleAge is the interval":       {spec: `{resourceMetrics: {maxSampleAge: 30s, scrape: {interval: 30s}}}`, refused: "maxSampleAge must be at least 30s longer than scrape.interval"},
		"interval over default maxSampleAge": {spec: scrape(`interval: 61s`), refused: "raise maxSampleAge, whose default is 90s"},
		"interval":                           {spec: scrape(`interval: 1m`)},
		"shortest interval":                  {spec: scrape(`interval: 1s, timeout: 1s`)},
		"too short an interval":              {spec: scrape(`interval: 999ms, timeout: 500ms`), refused: "scrape.interval must be between 1s and 10m"},
		"longest interval":                   {spec: `{resourceMetrics: {maxSampleAge: 10m30s, scrape: {interval: 10m}}}`},
		"too long an interval":               {spec: `{resourceMetrics: {maxSampleAge: 1h, scrape: {interval: 11m}}}`, refused: "scrape.interval must be between 1s and 10m"},
		"malformed interval":                 {spec: scrape(`interval: soon`), refused: "spec.resourceMetrics.scrape.interval"},
		"shortest timeout":                   {spec: scrape(`timeout: 100ms`)},
		"too short a timeout":                {spec: scrape(`timeout: 99ms`), refused: "scrape.timeout must be between 100ms and 1m"},
		"longest timeout":                    {spec: scrape(`interval: 1m, timeout: 1m`)},
		"too long a timeout":                 {spec: `{resourceMetrics: {maxSampleAge: 5m, scrape: {interval: 2m, timeout: 61s}}}`, refused: "scrape.timeout must be between 100ms and 1m"},
		"timeout over interval":              {spec: scrape(`interval: 5s, timeout: 6s`), refused: "scrape.timeout must not be longer than scrape.interval"},
		"interval under default timeout":     {spec: scrape(`interval: 5s`), refused: "scrape.timeout must not be longer than scrape.interval"},
		"maxConcurrent":                      {spec: scrape(`maxConcurrent: 1000`)},
		"maxConcurrent of zero":              {spec: scrape(`maxConcurrent: 0`), refused: "spec.resourceMetrics.scrape.maxConcurrent"},
		"too high maxConcurrent":             {spec: scrape(`maxConcurrent: 1001`), refused: "spec.resourceMetrics.scrape.maxConcurrent"},
		"maxResponseSize":                    {spec: scrape(`maxResponseSize: 512Ki`)},
		"maxResponseSize in bytes":           {spec: scrape(`maxResponseSize: "1000000"`)},
		"largest maxResponseSize":            {spec: scrape(`maxResponseSize: 256Mi`)},
		"too large a maxResponseSize":        {spec: scrape(`maxResponseSize: 257Mi`), refused: "scrape.maxResponseSize must be at most 256Mi"},
		"maxResponseSize of zero":            {spec: scrape(`maxResponseSize: "0"`), refused: "spec.resourceMetrics.scrape.maxResponseSize"},
		"maxResponseSize with Gi":            {spec: scrape(`maxResponseSize: 1Gi`), refused: "spec.resourceMetrics.scrape.maxResponseSize"},
		"address types":                      {spec: scrape(`addressTypes: [Hostname]`)},
		"no address type":                    {spec: scrape(`addressTypes: []`), refused: "should have at least 1 items"},
		"unknown address type":               {spec: scrape(`addressTypes: [Carrier]`), refused: `supported values: "Hostname"`},
		"kubelet port":                       {spec: scrape(`port: 10255`)},
		"kubelet port of zero":               {spec: scrape(`port: 0`), refused: "spec.resourceMetrics.scrape.port"},
		"kubelet port too high":              {spec: scrape(`port: 65536`), refused: "spec.resourceMetrics.scrape.port"},
		"node selector":                      {spec: scrape(`nodeSelector: {matchExpressions: [{key: type, operator: NotIn, values: [virtual-kubelet]}]}`)},
		"unknown operator":                   {spec: scrape(`nodeSelector: {matchExpressions: [{key: type, operator: Foo}]}`), refused: "must be In, NotIn, Exists or DoesNotExist"},
		"operator without values":            {spec: scrape(`nodeSelector: {matchExpressions: [{key: type, operator: In}]}`), refused: "need values with In and NotIn"},
		"operator with values":               {spec: scrape(`nodeSelector: {matchExpressions: [{key: type, operator: Exists, values: [a]}]}`), refused: "none with Exists and DoesNotExist"},
		"operator that takes no values":      {spec: scrape(`nodeSelector: {matchExpressions: [{key: type, operator: DoesNotExist}]}`)},
		"watch, as by default":               {spec: watch(``)},
		"no watch":                           {spec: watch(`mode: Disabled`)},
		"unknown watch mode":                 {spec: watch(`mode: Maybe`), refused: `supported values: "Enabled", "Disabled"`},
		"least of watch":                     {spec: watch(`maxWatches: 1, maxWatchesPerUser: 1, maxOpensPerSecondPerUser: 1, bookmarkInterval: 5s, maxDuration: 1m`)},
		"most of watch":                      {spec: watch(`maxWatches: 100000, maxWatchesPerUser: 100000, maxOpensPerSecondPerUser: 10000, bookmarkInterval: 10m, maxDuration: 24h`)},
		"no connection":                      {spec: watch(`maxWatches: 0`), refused: "to serve no watch at all, set watch.mode: Disabled"},
		"too many connections":               {spec: watch(`maxWatches: 100001`), refused: "watch.maxWatches must be between 1 and 100000"},
		"no connection of a user":            {spec: watch(`maxWatchesPerUser: 0`), refused: "to serve no watch at all, set watch.mode: Disabled"},
		"too many connections of a user":     {spec: watch(`maxWatchesPerUser: 100001`), refused: "watch.maxWatchesPerUser must be between 1 and 100000"},
		"no rate of watches":                 {spec: watch(`maxOpensPerSecondPerUser: 0`), refused: "watch.maxOpensPerSecondPerUser must be between 1 and 10000"},
		"too high a rate of watches":         {spec: watch(`maxOpensPerSecondPerUser: 10001`), refused: "watch.maxOpensPerSecondPerUser must be between 1 and 10000"},
		"too many bookmarks":                 {spec: watch(`bookmarkInterval: 4999ms`), refused: "watch.bookmarkInterval must be between 5s and 10m"},
		"too few bookmarks":                  {spec: watch(`bookmarkInterval: 11m`), refused: "watch.bookmarkInterval must be between 5s and 10m"},
		"malformed bookmark interval":        {spec: watch(`bookmarkInterval: often`), refused: "spec.watch.bookmarkInterval"},
		"too short a watch":                  {spec: watch(`maxDuration: 59s`), refused: "watch.maxDuration must be between 1m and 24h"},
		"too long a watch":                   {spec: watch(`maxDuration: 25h`), refused: "watch.maxDuration must be between 1m and 24h"},
		"pinned kubelets":                    {spec: `{resourceMetrics: {kubeletTLS: {mode: PinOnFirstUse}}}`},
		"unverified kubelets":                {spec: `{resourceMetrics: {kubeletTLS: {mode: InsecureSkipTLSVerify}}}`},
		"unknown kubelet mode":               {spec: `{resourceMetrics: {kubeletTLS: {mode: Hope}}}`, refused: `supported values: "VerifyOrPin", "Verify", "PinOnFirstUse", "InsecureSkipTLSVerify"`},
		"CA with Verify":                     {spec: `{resourceMetrics: {kubeletTLS: {mode: Verify, caBundle: ` + ca + `}}}`},
		"CA with VerifyOrPin":                {spec: `{resourceMetrics: {kubeletTLS: {mode: VerifyOrPin, caBundle: ` + ca + `}}}`},
		"CA with the default":                {spec: `{resourceMetrics: {kubeletTLS: {caBundle: ` + ca + `}}}`},
		"CA that is not PEM":                 {spec: `{resourceMetrics: {kubeletTLS: {caBundle: QQ==}}}`, refused: "kubeletTLS.caBundle must hold one or more certificates in PEM"},
		"CA that is not used":                {spec: `{resourceMetrics: {kubeletTLS: {mode: InsecureSkipTLSVerify, caBundle: ` + ca + `}}}`, refused: "kubeletTLS.caBundle has an effect with modes Verify and VerifyOrPin only"},
		"CA with PinOnFirstUse":              {spec: `{resourceMetrics: {kubeletTLS: {mode: PinOnFirstUse, caBundle: ` + ca + `}}}`, refused: "kubeletTLS.caBundle has an effect with modes Verify and VerifyOrPin only"},
		"CA that is not base64":              {spec: `{resourceMetrics: {kubeletTLS: {caBundle: "-----BEGIN"}}}`, refused: "spec.resourceMetrics.kubeletTLS.caBundle"},
		"replicas":                           {spec: `{serving: {replicas: 10}, resourceMetrics: {}}`},
		"no replicas":                        {spec: `{serving: {replicas: 0}, resourceMetrics: {}}`, refused: "spec.serving.replicas"},
		"too many replicas":                  {spec: `{serving: {replicas: 11}, resourceMetrics: {}}`, refused: "spec.serving.replicas"},
		"pull policy":                        {spec: `{serving: {imagePullPolicy: Always}, resourceMetrics: {}}`},
		"unknown pull policy":                {spec: `{serving: {imagePullPolicy: Sometimes}, resourceMetrics: {}}`, refused: `supported values: "Always"`},
		"pull secrets":                       {spec: `{serving: {imagePullSecrets: [{name: a}, {name: b}]}, resourceMetrics: {}}`},
		"the same pull secret":               {spec: `{serving: {imagePullSecrets: [{name: a}, {name: a}]}, resourceMetrics: {}}`, refused: "Duplicate value"},
		"no pull secrets":                    {spec: `{serving: {imagePullSecrets: []}, resourceMetrics: {}}`},
		// It would stall the backend over a Secret "".
		"pull secret without a name":     {spec: `{serving: {imagePullSecrets: [{}]}, resourceMetrics: {}}`, refused: "each of serving.imagePullSecrets must name a Secret"},
		"pull secret of an empty name":   {spec: `{serving: {imagePullSecrets: [{name: ""}]}, resourceMetrics: {}}`, refused: "each of serving.imagePullSecrets must name a Secret"},
		"one pull secret without a name": {spec: `{serving: {imagePullSecrets: [{name: pull}, {}]}, resourceMetrics: {}}`, refused: "each of serving.imagePullSecrets must name a Secret"},
		"serving port":                   {spec: `{serving: {port: 1024, hostNetwork: true}, resourceMetrics: {}}`},
		"the kubelet's port in a pod":    {spec: `{serving: {port: 10250}, resourceMetrics: {}}`},
		"the kubelet's port on a node":   {spec: `{serving: {port: 10250, hostNetwork: true}, resourceMetrics: {}}`, refused: "serving.port 10250 is the kubelet's own on each node: with serving.hostNetwork remove serving.port (10443 is the default then)"},
		"privileged serving port":        {spec: `{serving: {port: 443}, resourceMetrics: {}}`, refused: "spec.serving.port"},
		"serving port too high":          {spec: `{serving: {port: 65536}, resourceMetrics: {}}`, refused: "spec.serving.port"},
		"log verbosity":                  {spec: `{serving: {logVerbosity: 10}, resourceMetrics: {}}`},
		"too much log":                   {spec: `{serving: {logVerbosity: 11}, resourceMetrics: {}}`, refused: "spec.serving.logVerbosity"},
		"negative log verbosity":         {spec: `{serving: {logVerbosity: -1}, resourceMetrics: {}}`, refused: "spec.serving.logVerbosity"},
		"label":                          {spec: labels("example.com/")},
		"our label":                      {spec: labels("metricsbackend.io/"), refused: "labels below metricsbackend.io/ and app.kubernetes.io/ are set by the operator"},
		"recommended label":              {spec: labels("app.kubernetes.io/"), refused: "labels below metricsbackend.io/ and app.kubernetes.io/ are set by the operator"},
		"label that aggregates roles":    {spec: labels("rbac.authorization.k8s.io/"), refused: "would make the ClusterRoles of serving part of other roles"},
		"annotation":                     {spec: `{serving: {annotations: {example.com/a: b}}, resourceMetrics: {}}`},
		"our annotation":                 {spec: `{serving: {annotations: {metricsbackend.io/a: b}}, resourceMetrics: {}}`, refused: "annotations below metricsbackend.io/ are set by the operator"},
		"network policy":                 {spec: `{serving: {networkPolicy: Restricted}, resourceMetrics: {}}`},
		"unknown network policy":         {spec: `{serving: {networkPolicy: Maybe}, resourceMetrics: {}}`, refused: `supported values: "None", "Restricted"`},
		"environment":                    {spec: `{serving: {env: [{name: HTTPS_PROXY, value: "http://proxy:3128"}, {name: NO_PROXY, valueFrom: {configMapKeyRef: {name: a, key: b}}}]}, resourceMetrics: {}}`},
		"environment of the operator":    {spec: `{serving: {env: [{name: POD_IP, value: a}]}, resourceMetrics: {}}`, refused: "serving.env must not have POD_IP and SCRAPE_SERVICE_ACCOUNT, which the operator sets"},
		"the same variable twice":        {spec: `{serving: {env: [{name: A}, {name: A}]}, resourceMetrics: {}}`, refused: "Duplicate value"},
		"account annotations":            {spec: `{serving: {serviceAccountAnnotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::1:role/a"}}, resourceMetrics: {}}`},
		"spread":                         {spec: `{serving: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}, resourceMetrics: {}}`},
		"spread without a key":           {spec: `{serving: {topologySpreadConstraints: [{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]}, resourceMetrics: {}}`, refused: "topologyKey"},
		"user from the platform":         {spec: `{serving: {userFromPlatform: true}, resourceMetrics: {}}`},
		"CA certificates":                {spec: `{serving: {caConfigMapKeyRef: {name: bundle, key: ca.crt}}, resourceMetrics: {}}`},
		"CA certificates without a key":  {spec: `{serving: {caConfigMapKeyRef: {name: bundle}}, resourceMetrics: {}}`, refused: "spec.serving.caConfigMapKeyRef.key"},
		"extra flag":                     {spec: args("--runtime-config=metrics.k8s.io/v1=false")},
		"TLS version":                    {spec: args("--tls-min-version=VersionTLS13")},
		"audit to standard output":       {spec: args("--audit-log-path=-")},
		"rotation of audit logs":         {spec: args("--audit-log-maxsize=10")},
		"feature gate":                   {spec: args("--feature-gates=APIServingWithRoutine=true")},
		"anonymous paths":                {spec: args("--authorization-always-allow-paths=/apis/*"), refused: "serving.extraArgs only allows"},
		"another front proxy":            {spec: args("--requestheader-client-ca-file=/x"), refused: "serving.extraArgs only allows"},
		"front proxies of any name":      {spec: args("--requestheader-allowed-names="), refused: "serving.extraArgs only allows"},
		"another client CA":              {spec: args("--client-ca-file=/x"), refused: "serving.extraArgs only allows"},
		"failed reviews are ignored":     {spec: args("--authentication-tolerate-lookup-failure=true"), refused: "serving.extraArgs only allows"},
		"another certificate by name":    {spec: args("--tls-sni-cert-key=/x,/y"), refused: "serving.extraArgs only allows"},
		"another kubelet CA":             {spec: args("--kubelet-ca-file=/x"), refused: "serving.extraArgs only allows"},
		"audit events to a webhook":      {spec: args("--audit-webhook-config-file=/x"), refused: "serving.extraArgs only allows"},
		"unknown flag":                   {spec: args("--kube-api-qps=100"), refused: "serving.extraArgs only allows"},
		"flag without a value":           {spec: args("--help"), refused: "each of serving.extraArgs must have the form --flag=value"},
		"argument that is no flag":       {spec: args("serve=now"), refused: "each of serving.extraArgs must have the form --flag=value"},
		"flag of the operator":           {spec: args("--secure-port=1"), refused: "serving.extraArgs only allows"},
		"flag spelt with underscores":    {spec: args("--secure_port=1"), refused: "serving.extraArgs only allows"},
		"file with underscores":          {spec: args("--backend_file=/x"), refused: "serving.extraArgs only allows"},
		"flag spelt both ways":           {spec: args("--tls-private_key_file=/x"), refused: "serving.extraArgs only allows"},
		"another address":                {spec: args("--bind-address=127.0.0.1"), refused: "serving.extraArgs only allows"},
		"another account's reviews":      {spec: args("--authentication-kubeconfig=/x"), refused: "serving.extraArgs only allows"},
		"another account's decisions":    {spec: args("--authorization_kubeconfig=/x"), refused: "serving.extraArgs only allows"},
		"value with underscores":         {spec: args("--feature-gates=secure_port=1"), refused: ""},
		"flag of the shutdown":           {spec: args("--shutdown-delay-duration=1s"), refused: "serving.extraArgs only allows"},
		"verbosity as a flag":            {spec: args("--v=9"), refused: "serving.extraArgs only allows"},
		"another file's settings":        {spec: args("--backend-file=/tmp/x"), refused: "serving.extraArgs only allows"},
		"too long a flag":                {spec: args("--x=" + strings.Repeat("y", 1024)), refused: "spec.serving.extraArgs"},
	}
	validate(t, suite, "MetricsBackend", "", cases)
}

// validate creates each case's object, in a dry run, and compares the refusal.
func validate(t *testing.T, suite *controlPlane, kind, namespace string, cases map[string]validationCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := manifest(t, kind, namespace, cmp.Or(tc.name, "valid"), tc.spec)
			wantRefusal(t, suite.admin.Create(t.Context(), object, client.DryRunAll, client.FieldValidation("Strict")), tc.refused)
		})
	}
}

// wantRefusal compares an error with a part of the wanted message; an empty one
// stands for none.
func wantRefusal(t *testing.T, err error, refused string) {
	t.Helper()
	switch {
	case refused == "" && err != nil:
		t.Errorf("refused: %v", err)
	case refused != "" && err == nil:
		t.Errorf("accepted, want a refusal with %q", refused)
	case refused != "" && !strings.Contains(err.Error(), refused):
		t.Errorf("refused with %q, want %q in it", err, refused)
	}
}

// manifest is an object of one of our kinds; the spec is YAML.
func manifest(t *testing.T, kind, namespace, name, spec string) *unstructured.Unstructured {
	t.Helper()
	object := unstructuredOf(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind})
	object.SetNamespace(namespace)
	object.SetName(name)
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatal(err)
	}
	object.Object["spec"] = fields
	return object
}

// spec.serving.namespace stays what it was, also when it was not set.
func TestNamespaceIsImmutable(t *testing.T) {
	suite := take(t)
	cases := map[string]struct {
		before, after string
		refused       bool
	}{
		"unchanged": {before: foreignNamespace, after: foreignNamespace},
		"still not": {},
		"changed":   {before: foreignNamespace, after: otherNamespace, refused: true},
		"set":       {after: foreignNamespace, refused: true},
		"taken out": {before: foreignNamespace, refused: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			createBackend(t, suite, newBackend("immutable", func(spec *v1alpha1.MetricsBackendSpec) {
				spec.Serving.Namespace = tc.before
				// The versions of no other test; the image never starts.
				spec.Serving.Image = imageMissing
			}))
			backend := getBackend(t, suite, "immutable")
			// A patch: the operator writes metadata and status meanwhile.
			before := client.MergeFrom(backend.DeepCopy())
			backend.Spec.Serving.Namespace = tc.after
			backend.Spec.Serving.LogVerbosity = ptr.To[int32](3)
			err := suite.admin.Patch(t.Context(), backend, before, client.DryRunAll)
			const want = "serving.namespace is immutable: delete the MetricsBackend and create it again with the other namespace"
			if tc.refused != (err != nil) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("refused = %t with %v, want %t with %q", err != nil, err, tc.refused, want)
			}
		})
	}
}

// An object that was stored with another flag than the schema allows keeps it until
// serving.extraArgs is changed.
func TestStoredFlagIsKept(t *testing.T) {
	suite := take(t)
	const crd = "config/crd/bases/metricsbackend.io_metricsbackends.yaml"
	restore := func() { mustKubectl(t, suite, "apply", "--server-side", "--force-conflicts", "-f", crd) }
	t.Cleanup(restore)
	mustKubectl(t, suite, "patch", "crd", "metricsbackends.metricsbackend.io", "--type=json", "-p",
		`[{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/serving/properties/extraArgs/x-kubernetes-validations"}]`)
	stored := newBackend("stored", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.Image = imageMissing // never starts
		spec.Serving.ExtraArgs = []string{"--shutdown-delay-duration=1s"}
	})
	outcome.Eventually(t, patience, "the schema without the rule", func(ctx context.Context) error {
		return suite.admin.Create(ctx, stored.DeepCopy(), client.DryRunAll)
	})
	createBackend(t, suite, stored)
	restore()
	const refused = "serving.extraArgs only allows"
	outcome.Eventually(t, patience, "the schema with the rule", func(ctx context.Context) error {
		fresh := newBackend("fresh", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving = stored.Spec.Serving })
		if err := suite.admin.Create(ctx, fresh, client.DryRunAll); err == nil || !strings.Contains(err.Error(), refused) {
			return fmt.Errorf("not refused: %v", err)
		}
		return nil
	})
	for name, tc := range map[string]struct {
		change  func(*v1alpha1.ServingSpec)
		refused string
	}{
		"another field": {change: func(s *v1alpha1.ServingSpec) { s.LogVerbosity = ptr.To[int32](3) }},
		"the flags":     {change: func(s *v1alpha1.ServingSpec) { s.ExtraArgs = append(s.ExtraArgs, "--v=3") }, refused: refused},
	} {
		t.Run(name, func(t *testing.T) {
			backend := getBackend(t, suite, "stored")
			before := client.MergeFrom(backend.DeepCopy())
			tc.change(&backend.Spec.Serving)
			wantRefusal(t, suite.admin.Patch(t.Context(), backend, before, client.DryRunAll), tc.refused)
		})
	}
}

// The schema's defaults and SetDefaults are the same, except for serving.port: the
// schema has none, so that a later hostNetwork, or release, can have another default.
func TestDefaults(t *testing.T) {
	suite := take(t)
	created := newBackend("defaults")
	if err := suite.admin.Create(t.Context(), created, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	// kstatus would take an object without any condition for finished.
	if created.Status.ObservedGeneration != -1 {
		t.Errorf("observedGeneration %d of a backend that nobody looked at, want -1", created.Status.ObservedGeneration)
	}
	want := newBackend("defaults").Spec
	v1alpha1.SetDefaults(&want)
	want.Serving.Port = nil
	if diff := gocmp.Diff(want, created.Spec); diff != "" {
		t.Errorf("SetDefaults (-) and the CRD (+) differ:\n%s", diff)
	}
	explicit := v1alpha1.MetricsBackendSpec{
		Serving: v1alpha1.ServingSpec{
			Certificates:    v1alpha1.CertificatesSpec{Mode: v1alpha1.CertificatesManaged},
			ImagePullPolicy: corev1.PullIfNotPresent, Replicas: ptr.To[int32](2),
			PriorityClassName: "system-cluster-critical", LogVerbosity: ptr.To[int32](2), NetworkPolicy: v1alpha1.NetworkPolicyNone,
		},
		ResourceMetrics: &v1alpha1.ResourceMetricsSpec{
			Versions:     []v1alpha1.ResourceMetricsVersion{"v1", "v1beta1"},
			Adoption:     v1alpha1.AdoptionRefuse,
			MaxSampleAge: &metav1.Duration{Duration: 90 * time.Second},
			Scrape: v1alpha1.ScrapeSpec{
				Interval: &metav1.Duration{Duration: 15 * time.Second}, Timeout: &metav1.Duration{Duration: 10 * time.Second},
				MaxConcurrent: ptr.To[int32](64), MaxResponseSize: "16Mi",
				AddressTypes: []corev1.NodeAddressType{"InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"},
			},
			KubeletTLS: v1alpha1.KubeletTLSSpec{Mode: v1alpha1.KubeletTLSVerifyOrPin},
		},
		Watch: v1alpha1.WatchSpec{
			Mode: v1alpha1.WatchEnabled, MaxWatches: ptr.To[int32](10000), MaxWatchesPerUser: ptr.To[int32](1000),
			MaxOpensPerSecondPerUser: ptr.To[int32](100),
			BookmarkInterval:         &metav1.Duration{Duration: time.Minute}, MaxDuration: &metav1.Duration{Duration: time.Hour},
		},
	}
	if diff := gocmp.Diff(explicit, created.Spec); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

// Each printer column is there, and kubectl explain knows each field.
func TestKubectlShowsColumnsAndFields(t *testing.T) {
	suite := take(t)
	createBackend(t, suite, newBackend("cluster"))
	waitReady(t, suite, "cluster")
	out := mustKubectl(t, suite, "get", "mb", "cluster", "--no-headers")
	if got, want := strings.Join(strings.Fields(out)[:7], " "), "cluster True Succeeded True v1, v1beta1 2/2"; got != want {
		t.Errorf("columns %q, want %q", got, want)
	}
	for _, path := range []string{
		"metricsbackend.spec.serving", "metricsbackend.spec.resourceMetrics.scrape", "metricsbackend.spec.resourceMetrics.kubeletTLS",
		"metricsbackend.spec.watch", "metricsbackend.status.apiServices",
		"metricsbackend.spec.sources", "metricsbackend.spec.sources.prometheus", "metricsbackend.spec.sources.prometheus.tls",
		"metricsbackend.spec.sources.prometheus.authentication", "metricsbackend.spec.sources.prometheus.headers",
		"metricsbackend.spec.sources.prometheus.tenancy", "metricsbackend.spec.customMetrics", "metricsbackend.spec.customMetrics.rules",
		"metricsbackend.spec.customMetrics.rules.resources", "metricsbackend.spec.customMetrics.rules.seriesFilters",
		"metricsbackend.spec.externalMetrics", "metricsbackend.spec.resourceMetrics.rules", "metricsbackend.spec.resourceMetrics.rules.cpu",
		"custommetric", "custommetric.spec", "custommetric.spec.describedObject", "custommetric.spec.fallback", "custommetric.status",
		"externalmetric", "externalmetric.spec", "externalmetric.status",
		"externalmetricspolicy", "externalmetricspolicy.spec", "externalmetricspolicy.spec.rules", "externalmetricspolicy.status",
	} {
		if out, err := kubectl(suite, "explain", path); err != nil || strings.Contains(out, "<no description>") {
			t.Errorf("kubectl explain %s: %v\n%s", path, err, out)
		}
	}
	create(t, suite, manifest(t, "ExternalMetric", otherNamespace, "queue", "{query: up, metricName: queue/messages, source: main}"))
	out = mustKubectl(t, suite, "get", "emet", "-n", otherNamespace, "-o", "wide")
	header, row, _ := strings.Cut(out, "\n")
	if diff := gocmp.Diff([]string{"NAME", "METRIC", "VALUE", "READY", "REASON", "SOURCE", "AGE", "MESSAGE"}, strings.Fields(header)); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	// READY and MESSAGE are there once the operator has looked, and VALUE with a source.
	if got := strings.Fields(row); len(got) < 4 || got[1] != "queue/messages" || !slices.Contains(got[2:4], "main") {
		t.Errorf("row %q, want the metric's name and its source", row)
	}
}
