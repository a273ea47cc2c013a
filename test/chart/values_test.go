// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// everything sets values to others than their defaults; of an image, either tag or digest.
const everything = `
crds: {enabled: true, keep: false}
image: {repository: registry.example.com/operator, tag: v1.2.3, pullPolicy: Always}
serving: {image: {repository: registry.example.com/serving, digest: "sha256:` + digest + `"}}
imagePullSecrets: [{name: registry}]
replicas: 2
namespaces: [monitoring, metrics-backend-system]
resources: {limits: {memory: 1Gi}}
nodeSelector: {node-role.kubernetes.io/control-plane: ""}
tolerations: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [a]}]}]}}}
priorityClassName: mine
topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}]
commonLabels: {cost-center: a, release: common, team: common}
podLabels: {team: platform}
podAnnotations: {example.com/a: b}
serviceAccount: {annotations: {example.com/role: operator}}
userFromPlatform: true
logLevel: 4
extraArgs: [--kube-api-qps=100, --kube-api-burst=200]
env: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
volumes: [{name: certificate, secret: {secretName: operator-metrics}}]
volumeMounts: [{name: certificate, mountPath: /certificate, readOnly: true}]
networkPolicy: {enabled: true, egress: [{ports: [{port: 6443}]}]}
serviceMonitor: {enabled: true, namespace: monitoring, labels: {release: prometheus}, interval: 1m, tlsConfig: {serverName: metrics}, authorization: {credentials: {name: prometheus, key: token}}, serving: {backend: main, namespace: metrics}}
prometheusRule: {enabled: true, namespace: monitoring, labels: {release: prometheus}}
dashboard: {enabled: true, namespace: grafana, labels: {grafana_dashboard: "yes"}}
scrape: {enabled: true, serviceAccount: {namespace: scraper, name: server}}
test: {image: registry.example.com/kubectl}
`

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// With defaults, the chart's objects are those of config/default, but for labels
// that tell of the release, the note for Helm that keeps CRDs, and the Namespace,
// which Helm makes itself.
func TestDefaultsAreKustomizes(t *testing.T) {
	compareWithKustomize(t, "{}", "../../config/default")
}

// So are those for prometheus-operator, once they are enabled.
func TestMonitoringIsKustomizes(t *testing.T) {
	compareWithKustomize(t, "{serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}", "../../config/default", "../../config/monitoring")
}

func compareWithKustomize(t *testing.T, values string, kustomizations ...string) {
	t.Helper()
	want := kustomized(t, kustomizations...)
	delete(want, "Namespace "+namespace)
	got := withoutRelease(t, mustRender(t, values))
	if diff := cmp.Diff(plain(want), plain(got)); diff != "" {
		t.Errorf("(-%s +chart):\n%s", kustomizations, diff)
	}
}

// withoutRelease removes from objects what tells of the release, and checks it.
func withoutRelease(t *testing.T, objects map[string]*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	t.Helper()
	for _, object := range objects {
		labels := object.GetLabels()
		for key, value := range map[string]string{
			"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "dev", "helm.sh/chart": "metrics-backend-operator-0.0.0-dev",
		} {
			if labels[key] != value {
				t.Errorf("%s %s: label %s is %q, not %q", object.GetKind(), object.GetName(), key, labels[key], value)
			}
			delete(labels, key)
		}
		object.SetLabels(labels)
		if annotations := object.GetAnnotations(); object.GetKind() == "CustomResourceDefinition" {
			if annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%s is not kept", object.GetName())
			}
			delete(annotations, "helm.sh/resource-policy")
			object.SetAnnotations(annotations)
		}
	}
	return objects
}

func plain(objects map[string]*unstructured.Unstructured) map[string]any {
	all := map[string]any{}
	for name, object := range objects {
		all[name] = object.Object
	}
	return all
}

// No object of a release in another namespace names that of config/default, not even in the text of an alert.
func TestReleaseNamespace(t *testing.T) {
	objects, err := renderIn(t, "elsewhere", "{replicas: 2, serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}, networkPolicy: {enabled: true}, "+
		"dashboard: {enabled: true}, scrape: {enabled: true}, test: {image: kubectl}}")
	if err != nil {
		t.Fatal(err)
	}
	for name, object := range objects {
		content, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(namespace)) {
			t.Errorf("%s names %s: %s", name, namespace, content)
		}
	}
}

// Each value ends up where it should.
func TestValues(t *testing.T) {
	const (
		deployment = "Deployment " + namespace + "/metrics-backend-operator"
		pod        = "spec.template.spec."
		container  = pod + "containers.0."
		crd        = "CustomResourceDefinition metricsbackends.metricsbackend.io"
		kept       = "metadata.annotations.helm%sh/resource-policy"
		quota      = "ResourceQuota " + namespace + "/metrics-backend-operator"
		monitor    = "ServiceMonitor monitoring/metrics-backend-operator"
		servings   = "ServiceMonitor metrics/metrics-backend-serving"
		rule       = "PrometheusRule monitoring/metrics-backend"
	)
	cases := map[string]struct{ values, object, path, want string }{
		"image":                        {everything, deployment, container + "image", `"registry.example.com/operator:v1.2.3"`},
		"pull policy":                  {everything, deployment, container + "imagePullPolicy", `"Always"`},
		"serving image, a digest":      {everything, deployment, container + "env.1.value", `"registry.example.com/serving@sha256:` + digest + `"`},
		"pull secrets":                 {everything, deployment, pod + "imagePullSecrets", `[{"name":"registry"}]`},
		"replicas":                     {everything, deployment, "spec.replicas", "2"},
		"resources":                    {"resources: {requests: null, limits: {memory: 1Gi}}", deployment, container + "resources", `{"limits":{"memory":"1Gi"}}`},
		"node selector":                {everything, deployment, pod + "nodeSelector", `{"kubernetes.io/os":"linux","node-role.kubernetes.io/control-plane":""}`},
		"tolerations":                  {everything, deployment, pod + "tolerations", `[{"effect":"NoSchedule","key":"node-role.kubernetes.io/control-plane"}]`},
		"affinity":                     {everything, deployment, pod + "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0.matchFields.0.values", `["a"]`},
		"priority class":               {everything, deployment, pod + "priorityClassName", `"mine"`},
		"no priority class":            {`priorityClassName: ""`, deployment, pod + "priorityClassName", ""},
		"quota for the class":          {"", quota, "spec.hard.pods", `"1G"`},
		"quota for the other class":    {"priorityClassName: system-node-critical", quota, "spec.scopeSelector.matchExpressions.0.values", `["system-cluster-critical","system-node-critical"]`},
		"no quota for another class":   {everything, quota, "", ""},
		"no quota without a class":     {`priorityClassName: ""`, quota, "", ""},
		"no quota":                     {"resourceQuota: {enabled: false}", quota, "", ""},
		"pod labels":                   {everything, deployment, "spec.template.metadata.labels.team", `"platform"`},
		"pods do not know the chart":   {everything, deployment, "spec.template.metadata.labels.helm%sh/chart", ""},
		"pod annotations":              {everything, deployment, "spec.template.metadata.annotations.example%com/a", `"b"`},
		"arguments":                    {everything, deployment, container + "args", `["--leader-elect=true","--namespaces=metrics-backend-system,monitoring","-v=4","--kube-api-qps=100","--kube-api-burst=200"]`},
		"arguments by default":         {"", deployment, container + "args", `["--leader-elect=true","-v=1"]`},
		"the Role elsewhere":           {everything, "RoleBinding monitoring/metrics-backend-operator-serving", "subjects.0.namespace", `"` + namespace + `"`},
		"the Role here, once":          {everything, "Role " + namespace + "/metrics-backend-operator-serving", "metadata.name", `"metrics-backend-operator-serving"`},
		"CRDs are kept":                {"", crd, kept, `"keep"`},
		"CRDs are not kept":            {everything, crd, kept, ""},
		"no CRDs":                      {"crds: {enabled: false}", crd, "", ""},
		"no ServiceMonitor":            {"", monitor, "", ""},
		"ServiceMonitor's labels":      {everything, monitor, "metadata.labels.release", `"prometheus"`},
		"ServiceMonitor's endpoint":    {everything, monitor, "spec.endpoints.0.interval", `"1m"`},
		"ServiceMonitor's certificate": {everything, monitor, "spec.endpoints.0.tlsConfig", `{"serverName":"metrics"}`},
		"ServiceMonitor unverified":    {"serviceMonitor: {enabled: true}", "ServiceMonitor " + namespace + "/metrics-backend-operator", "spec.endpoints.0.tlsConfig", `{"insecureSkipVerify":true}`},
		"ServiceMonitor's token":       {"serviceMonitor: {enabled: true}", "ServiceMonitor " + namespace + "/metrics-backend-operator", "spec.endpoints.0.authorization", `{"credentials":{"key":"token","name":"metrics-backend-metrics-reader"}}`},
		"a token for each":             {"serviceMonitor: {enabled: true, serving: {namespace: metrics}}", "Secret metrics/metrics-backend-metrics-reader", "type", `"kubernetes.io/service-account-token"`},
		"which the account has":        {"serviceMonitor: {enabled: true, serving: {namespace: metrics}}", "ClusterRoleBinding metrics-backend-metrics-reader", "subjects.1.namespace", `"metrics"`},
		"not of what is not scraped":   {"serviceMonitor: {enabled: true, serving: {enabled: false, namespace: metrics}}", "Secret metrics/metrics-backend-metrics-reader", "", ""},
		"ServiceMonitor's Secret":      {everything, monitor, "spec.endpoints.0.authorization", `{"credentials":{"key":"token","name":"prometheus"}}`},
		"a Secret and no token":        {everything, "ClusterRoleBinding metrics-backend-metrics-reader", "", ""},
		"ServiceMonitor's Service":     {everything, "Service " + namespace + "/metrics-backend-operator-metrics", "spec.ports.0.targetPort", `"metrics"`},
		"serving's CA":                 {everything, servings, "spec.endpoints.0.tlsConfig.ca.secret.name", `"metrics-serving-main-tls"`},
		"serving's name":               {everything, servings, "spec.endpoints.0.tlsConfig.serverName", `"metrics-serving-main.metrics.svc"`},
		"serving's backend":            {everything, servings, "spec.selector.matchLabels.metricsbackend%io/backend", `"main"`},
		"serving's labels":             {everything, servings, "metadata.labels.release", `"prometheus"`},
		"serving's Secret":             {everything, servings, "spec.endpoints.0.authorization", `{"credentials":{"key":"token","name":"prometheus"}}`},
		"serving's own settings":       {"serviceMonitor: {enabled: true, serving: {tlsConfig: {insecureSkipVerify: true}}}", "ServiceMonitor " + namespace + "/metrics-backend-serving", "spec.endpoints.0.tlsConfig", `{"insecureSkipVerify":true}`},
		"not of serving":               {"serviceMonitor: {enabled: true, serving: {enabled: false}}", "ServiceMonitor " + namespace + "/metrics-backend-serving", "", ""},
		"rules' labels":                {everything, rule, "metadata.labels.release", `"prometheus"`},
		"rules as they are":            {everything, rule, "spec.groups.1.rules.0.annotations.summary", `"kube-apiserver cannot reach the server of {{ $labels.name }}"`},
		"no rules":                     {"", "PrometheusRule " + namespace + "/metrics-backend", "", ""},
		"a value's labels go first":    {everything, rule, "metadata.labels.release", `"prometheus"`},
		"topology":                     {everything, deployment, pod + "topologySpreadConstraints.0.maxSkew", "1"},
		"annotations of the account":   {everything, "ServiceAccount " + namespace + "/metrics-backend-operator", "metadata.annotations", `{"example.com/role":"operator"}`},
		"the platform's user":          {everything, deployment, pod + "securityContext", `{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}}`},
		"environment":                  {everything, deployment, container + "env.2", `{"name":"HTTPS_PROXY","value":"http://proxy:3128"}`},
		"volumes":                      {everything, deployment, pod + "volumes.1.secret", `{"secretName":"operator-metrics"}`},
		"mounted":                      {everything, deployment, container + "volumeMounts.1", `{"mountPath":"/certificate","name":"certificate","readOnly":true}`},
		"budget of two":                {everything, "PodDisruptionBudget " + namespace + "/metrics-backend-operator", "spec.minAvailable", "1"},
		"no budget of one":             {"", "PodDisruptionBudget " + namespace + "/metrics-backend-operator", "", ""},
		"no budget":                    {"{replicas: 2, podDisruptionBudget: {enabled: false}}", "PodDisruptionBudget " + namespace + "/metrics-backend-operator", "", ""},
		"what comes in":                {everything, "NetworkPolicy " + namespace + "/metrics-backend-operator", "spec.ingress", `[{"ports":[{"port":"metrics","protocol":"TCP"},{"port":"health","protocol":"TCP"}]}]`},
		"what goes out":                {everything, "NetworkPolicy " + namespace + "/metrics-backend-operator", "spec.egress", `[{"ports":[{"port":6443}]}]`},
		"everything goes out":          {"networkPolicy: {enabled: true}", "NetworkPolicy " + namespace + "/metrics-backend-operator", "spec.egress", "[{}]"},
		"no NetworkPolicy":             {"", "NetworkPolicy " + namespace + "/metrics-backend-operator", "", ""},
		"dashboard's label":            {everything, "ConfigMap grafana/metrics-backend-dashboard", "metadata.labels.grafana_dashboard", `"yes"`},
		"no dashboard":                 {"", "ConfigMap " + namespace + "/metrics-backend-dashboard", "", ""},
		"who scrapes":                  {everything, "RoleBinding " + namespace + "/metrics-backend-scrape", "subjects.0", `{"kind":"ServiceAccount","name":"server","namespace":"scraper"}`},
		"jobs beside it":               {everything, "ConfigMap scraper/metrics-backend-scrape", "metadata.name", `"metrics-backend-scrape"`},
		"no jobs":                      {"", "ConfigMap monitoring/metrics-backend-scrape", "", ""},
		"a test":                       {everything, "Pod " + namespace + "/metrics-backend-test", "spec.containers.0.image", `"registry.example.com/kubectl"`},
		"not one of the operator's":    {everything, "Pod " + namespace + "/metrics-backend-test", "metadata.labels.app%kubernetes%io/name", `"metrics-backend-test"`},
		"no test":                      {"", "Pod " + namespace + "/metrics-backend-test", "", ""},
		"no other Service":             {"", "Service " + namespace + "/metrics-backend-operator-metrics", "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := mustRender(t, tc.values)
			object := objects[tc.object]
			if object == nil {
				if tc.want != "" || tc.path != "" {
					t.Fatalf("no %s among %v", tc.object, slices.Sorted(maps.Keys(objects)))
				}
				return
			}
			if tc.path == "" {
				t.Fatalf("there is a %s", tc.object)
			}
			if got := at(t, object.Object, tc.path); got != tc.want {
				t.Errorf("%s: %s, want %s", tc.path, got, tc.want)
			}
		})
	}
}

// at is the JSON of what is at a path; empty when there is nothing. A % stands
// for a dot within a key.
func at(t *testing.T, from any, path string) string {
	t.Helper()
	for _, key := range strings.Split(path, ".") {
		key = strings.ReplaceAll(key, "%", ".")
		switch in := from.(type) {
		case map[string]any:
			from = in[key]
		case []any:
			index := int(key[0] - '0')
			if index >= len(in) {
				return ""
			}
			from = in[index]
		}
		if from == nil {
			return ""
		}
	}
	found, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(found)
}

// Values that cannot work are refused before anything is applied.
func TestValuesRefused(t *testing.T) {
	cases := map[string]struct{ values, want string }{
		"a typing error":        {"tolerations: []\nresorces: {}", "resorces"},
		"the selector's label":  {"podLabels: {app.kubernetes.io/name: mine}", "app.kubernetes.io/name"},
		"replicas as text":      {`replicas: "2"`, "replicas"},
		"negative replicas":     {"replicas: -1", "replicas"},
		"an unknown policy":     {"image: {pullPolicy: Sometimes}", "pullPolicy"},
		"no image":              {`image: {repository: ""}`, "repository"},
		"half a digest":         {"image: {digest: sha256:abc}", "digest"},
		"no namespace's name":   {"namespaces: [Not_A_Name]", "namespaces"},
		"an argument, no flag":  {"extraArgs: [help]", "extraArgs"},
		"arguments as one text": {"extraArgs: --v=4", "extraArgs"},
		"keep as text":          {`crds: {keep: "yes"}`, "keep"},
		"a label of selectors":  {"commonLabels: {app.kubernetes.io/name: mine}", "app.kubernetes.io/name"},
		"a label of RBAC":       {`commonLabels: {rbac.authorization.k8s.io/aggregate-to-view: "true"}`, "aggregate-to-view"},
		"the chart's variable":  {"env: [{name: SERVING_IMAGE, value: a}]", "name"},
		"the chart's volume":    {"volumes: [{name: tmp, emptyDir: {}}]", "name"},
		"a spread without key":  {"topologySpreadConstraints: [{maxSkew: 1}]", "topologyKey"},
		"a quota's own limit":   {"resourceQuota: {pods: 5}", "pods"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, tc.values)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error about %s", err, tc.want)
			}
		})
	}
}
