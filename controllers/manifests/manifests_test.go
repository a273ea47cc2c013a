// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

func serving(change ...func(*v1alpha1.ServingSpec)) Serving {
	spec := v1alpha1.MetricsBackendSpec{}
	for _, c := range change {
		c(&spec.Serving)
	}
	v1alpha1.SetDefaults(&spec)
	return Serving{Backend: "b", Namespace: "ns", Image: "image:1", KubeletPort: 10250, AccountUID: "account", Scrapes: true, Spec: spec.Serving}
}

// typed turns an apply configuration into the API type that it is for.
func typed[T any](t *testing.T, object any) *T {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	into := new(T)
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Fatal(err)
	}
	return into
}

// withSources is for a spec with custom metrics from several sources.
func withSources(s Serving) Serving {
	secret := func(name, key string) *v1alpha1.SecretKeyReference {
		return &v1alpha1.SecretKeyReference{SecretReference: v1alpha1.SecretReference{Name: name}, Key: key}
	}
	s.CustomMetrics, s.Spec.CAConfigMapKeyRef = true, &v1alpha1.ConfigMapKeyReference{Name: "company-bundle", Key: "ca.crt"}
	s.Sources = []v1alpha1.SourceSpec{
		{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus.monitoring.svc:9090"}},
		{Name: "mimir", Prometheus: &v1alpha1.PrometheusSource{
			URL:            "https://mimir.example.com/prometheus",
			TLS:            v1alpha1.SourceTLS{CASecretKeyRef: secret("mimir-ca", "ca.crt"), ClientCertificateSecretRef: &v1alpha1.SecretReference{Name: "mimir-client"}},
			Authentication: v1alpha1.SourceAuthentication{BearerTokenSecretKeyRef: secret("mimir", "token")},
			Headers:        []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", ValueSecretKeyRef: secret("mimir", "tenant")}, {Name: "X-Team", Value: "a"}},
		}},
		{Name: "thanos", Prometheus: &v1alpha1.PrometheusSource{
			URL:            "https://thanos.monitoring.svc:9090",
			TLS:            v1alpha1.SourceTLS{CAConfigMapKeyRef: &v1alpha1.ConfigMapKeyReference{Name: "trust-bundle", Key: "ca-bundle.pem"}},
			Authentication: v1alpha1.SourceAuthentication{ServiceAccountToken: &v1alpha1.SourceServiceAccountToken{}},
		}},
		{Name: "amp", Prometheus: &v1alpha1.PrometheusSource{
			URL:            "https://amp.example.com",
			Authentication: v1alpha1.SourceAuthentication{OAuth2: &v1alpha1.SourceOAuth2{TokenURL: "https://login.example.com:8443/token", CredentialsSecretRef: v1alpha1.SecretReference{Name: "client"}}},
		}},
		{Name: "keda", MetricsAPI: &v1alpha1.MetricsAPISource{
			Service: v1alpha1.ExistingService{Namespace: "keda", Name: "keda-operator-metrics-apiserver"},
			Group:   v1alpha1.ExternalMetricsGroup, TLS: v1alpha1.SourceTLS{CASecretKeyRef: secret("kedaorg-certs", "ca.crt")},
		}},
		{Name: "adapter", MetricsAPI: &v1alpha1.MetricsAPISource{
			Service: v1alpha1.ExistingService{Namespace: "monitoring", Name: "adapter", Port: ptr.To[int32](4443)}, Group: v1alpha1.CustomMetricsGroup,
		}},
		{Name: "adapter-external", MetricsAPI: &v1alpha1.MetricsAPISource{
			Service: v1alpha1.ExistingService{Namespace: "other", Name: "adapter", Port: ptr.To[int32](4443)}, Group: v1alpha1.ExternalMetricsGroup,
		}},
		{Name: "none"},
	}
	return s
}

// everyObject returns the objects of a backend, of each kind that there is.
func everyObject(s Serving) []Object {
	s.Quota = true
	return append(All(withSources(s)), GuestServiceAccount(s), CASecret(s, Authorities{}), TLSSecret(s, nil, nil, nil), Certificate(s, v1alpha1.IssuerReference{}))
}

// sharedObjects returns those whose names do not depend on the backend.
func sharedObjects(s Serving) []Object {
	return []Object{AdmissionPolicy(s), AdmissionPolicyBinding(s), APIService(s, KnownVersions()[0], s.Target(nil)), CanaryAPIService(s, s.Target(nil))}
}

// Every object has the labels of the spec, which replace none of ours.
func TestLabels(t *testing.T) {
	s := serving(func(spec *v1alpha1.ServingSpec) {
		spec.NetworkPolicy = v1alpha1.NetworkPolicyRestricted
		spec.Labels = map[string]string{"cost-center": "42", "app.kubernetes.io/managed-by": "theirs"}
	})
	for _, object := range append(everyObject(s), sharedObjects(s)...) {
		meta := typed[metav1.PartialObjectMetadata](t, metadataOf(t, object))
		if meta.Labels["cost-center"] != "42" || meta.Labels["app.kubernetes.io/managed-by"] != v1alpha1.FieldOwner {
			t.Errorf("%s %s: labels %v", *object.GetKind(), meta.Name, meta.Labels)
		}
	}
	template := Certificate(s, v1alpha1.IssuerReference{}).Spec["secretTemplate"]
	if labels := template.(map[string]any)["labels"].(map[string]string); labels["cost-center"] != "42" {
		t.Errorf("Secret of cert-manager: labels %v", labels)
	}
}

func TestServiceAccountAnnotations(t *testing.T) {
	role := map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/metrics"}
	s := serving(func(spec *v1alpha1.ServingSpec) { spec.ServiceAccountAnnotations = role })
	if diff := cmp.Diff(role, ServiceAccount(s).Annotations); diff != "" {
		t.Errorf("of the pods' account (-want +got):\n%s", diff)
	}
	for _, other := range append(TokenServiceAccounts(s), ProberServiceAccount(s), GuestServiceAccount(s)) {
		if meta := typed[metav1.PartialObjectMetadata](t, metadataOf(t, other)); len(meta.Annotations) > 0 {
			t.Errorf("%s has annotations %v, which are for the pods alone", meta.Name, meta.Annotations)
		}
	}
}

// Every object says whose it is, and is named for its backend.
func TestAll(t *testing.T) {
	long := serving(func(spec *v1alpha1.ServingSpec) { spec.NetworkPolicy = v1alpha1.NetworkPolicyRestricted })
	long.Backend = strings.Repeat("b", 40) // as long as the CRD lets it be
	for _, object := range everyObject(long) {
		meta := typed[metav1.PartialObjectMetadata](t, metadataOf(t, object))
		name := *object.GetKind() + " " + meta.Name
		if meta.Labels[v1alpha1.LabelBackend] != long.Backend || meta.Labels["app.kubernetes.io/managed-by"] != v1alpha1.FieldOwner {
			t.Errorf("%s: labels %v", name, meta.Labels)
		}
		for key, value := range meta.Labels {
			if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
				t.Errorf("%s: label %s=%s: %v", name, key, value, problems)
			}
		}
		if len(meta.OwnerReferences) > 0 {
			t.Errorf("%s: has ownerReferences, which bypass the order of removal", name)
		}
		if !strings.Contains(meta.Name, long.Backend) {
			t.Errorf("%s: not named for its backend", name)
		}
		if *object.GetKind() == "Service" && len(validation.IsDNS1035Label(meta.Name)) > 0 {
			t.Errorf("%s: %v", name, validation.IsDNS1035Label(meta.Name))
		}
		// No pod runs as that for other implementations.
		if *object.GetKind() == "ServiceAccount" && len(meta.Name) > 63 && meta.Name != long.MetricsAPIName() {
			t.Errorf("%s: longer than a label may be", name)
		}
	}
	last := All(long)[len(All(long))-1]
	if *last.GetKind() != "Deployment" {
		t.Errorf("%s is applied last, want the Deployment, which needs all others", *last.GetKind())
	}
}

func metadataOf(t *testing.T, object Object) any {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"metadata": fields["metadata"], "kind": fields["kind"], "apiVersion": fields["apiVersion"]}
}

// Builders are pure: equal inputs give equal bytes, and nothing of the input is
// changed.
func TestBuildersArePure(t *testing.T) {
	make := func() Serving {
		return serving(func(spec *v1alpha1.ServingSpec) {
			spec.Labels = map[string]string{"team": "a", "z": "1", "b": "2"}
			spec.Annotations = map[string]string{"note": "n"}
			spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}}
			spec.NodeSelector = map[string]string{"pool": "infra"}
			spec.ExtraArgs = []string{"--profiling=false"}
			spec.NetworkPolicy = v1alpha1.NetworkPolicyRestricted
		})
	}
	s := make()
	first, err := json.Marshal(All(s))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, err := json.Marshal(All(s))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(first), string(again)); diff != "" {
			t.Fatalf("differs from time to time:\n%s", diff)
		}
	}
	if diff := cmp.Diff(make(), s); diff != "" {
		t.Errorf("the input was changed:\n%s", diff)
	}
}

// The accounts of sources exist only while one uses their tokens.
func TestTokenServiceAccounts(t *testing.T) {
	after := serving()
	after.RoleBefore = *typed[rbacv1.Role](t, Role(withSources(serving())))
	for name, tc := range map[string]struct {
		serving Serving
		want    []string
	}{
		"served as before":          {after, []string{"ns/metrics-serving-b-scrape", "ns/metrics-serving-b-source", "ns/metrics-serving-b-metricsapi"}},
		"no source":                 {serving(), []string{"ns/metrics-serving-b-scrape"}},
		"sources want their tokens": {withSources(serving()), []string{"ns/metrics-serving-b-scrape", "ns/metrics-serving-b-source", "ns/metrics-serving-b-metricsapi"}},
	} {
		var got []string
		for _, account := range TokenServiceAccounts(tc.serving) {
			got = append(got, *account.GetNamespace()+"/"+*account.GetName())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPodDisruptionBudget(t *testing.T) {
	if budget := PodDisruptionBudget(serving(func(spec *v1alpha1.ServingSpec) { spec.Replicas = ptr.To[int32](1) })); budget != nil {
		t.Error("a single replica has a budget, so that its node cannot be drained")
	}
	budget := typed[policyv1.PodDisruptionBudget](t, PodDisruptionBudget(serving()))
	want := policyv1.PodDisruptionBudgetSpec{
		MinAvailable:               ptr.To(intstr.FromInt32(1)),
		UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		Selector:                   &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelBackend: "b", "app.kubernetes.io/component": "serving"}},
	}
	if diff := cmp.Diff(want, budget.Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestService(t *testing.T) {
	service := typed[corev1.Service](t, Service(serving()))
	want := corev1.ServiceSpec{
		Type:     corev1.ServiceTypeClusterIP,
		Selector: map[string]string{v1alpha1.LabelBackend: "b", "app.kubernetes.io/component": "serving"},
		Ports:    []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromString("https")}},
	}
	if diff := cmp.Diff(want, service.Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNetworkPolicy(t *testing.T) {
	if NetworkPolicy(serving()) != nil {
		t.Error("there is one that nobody asked for")
	}
	s := serving(func(spec *v1alpha1.ServingSpec) { spec.NetworkPolicy = v1alpha1.NetworkPolicyRestricted })
	s.KubeletPort = 10255
	s.APIServerPorts = []int32{16443, 6443, 9443, 16443}
	policy := typed[networkingv1.NetworkPolicy](t, NetworkPolicy(s))
	if diff := cmp.Diff([]networkingv1.PolicyType{"Ingress", "Egress"}, policy.Spec.PolicyTypes); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
	show := func(ports []networkingv1.NetworkPolicyPort) []string {
		var out []string
		for _, p := range ports {
			out = append(out, string(*p.Protocol)+"/"+p.Port.String())
		}
		return out
	}
	if diff := cmp.Diff([]string{"TCP/https"}, show(policy.Spec.Ingress[0].Ports)); diff != "" || len(policy.Spec.Ingress) != 1 {
		t.Errorf("ingress (-want +got):\n%s", diff)
	}
	want := []string{
		"UDP/53", "UDP/5353", "TCP/https", "TCP/53", "TCP/443", "TCP/5353", "TCP/6443", "TCP/8443", "TCP/9443", "TCP/10255", "TCP/16443",
	}
	if diff := cmp.Diff(want, show(policy.Spec.Egress[0].Ports)); diff != "" || len(policy.Spec.Egress) != 1 {
		t.Errorf("egress (-want +got):\n%s", diff)
	}
	s = withSources(s)
	s.Sources = append(s.Sources, s.Sources[0], v1alpha1.SourceSpec{Name: "plain", Prometheus: &v1alpha1.PrometheusSource{URL: "http://thanos"}},
		v1alpha1.SourceSpec{Name: "wrong", Prometheus: &v1alpha1.PrometheusSource{URL: "http://a:b:c"}})
	policy = typed[networkingv1.NetworkPolicy](t, NetworkPolicy(s))
	if diff := cmp.Diff(slices.Concat(want[:4], []string{"TCP/80"}, []string{"TCP/443", "TCP/4443"}, want[5:8], []string{"TCP/9090"}, want[8:]), show(policy.Spec.Egress[0].Ports)); diff != "" {
		t.Errorf("egress with sources (-want +got):\n%s", diff)
	}
	// Ports of before stay, once each, and not what somebody added.
	for range 2 {
		added, number := &policy.Spec.Egress[0], ptr.To(intstr.FromInt32(1234))
		added.Ports = append(added.Ports, networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolTCP)},
			networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromString("postgres"))},
			networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolTCP), Port: number, EndPort: ptr.To[int32](2000)},
			networkingv1.NetworkPolicyPort{Protocol: ptr.To(corev1.ProtocolUDP), Port: number})
		policy.Spec.Egress = append(policy.Spec.Egress, networkingv1.NetworkPolicyEgressRule{
			To:    []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}},
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: number}},
		}, networkingv1.NetworkPolicyEgressRule{})
		s.PolicyBefore, s.Sources, s.KubeletPort = *policy, nil, 10250
		policy = typed[networkingv1.NetworkPolicy](t, NetworkPolicy(s))
		after := slices.Concat(want[:4], []string{"TCP/80"}, []string{"TCP/443", "TCP/4443"}, want[5:8], []string{"TCP/9090"}, want[8:9], []string{"TCP/10250"}, want[9:])
		if diff := cmp.Diff(after, show(policy.Spec.Egress[0].Ports)); diff != "" {
			t.Errorf("egress with that of before (-want +got):\n%s", diff)
		}
	}
}

func TestAPIService(t *testing.T) {
	v1, v1beta1 := KnownVersions()[0], KnownVersions()[1]
	configuration := APIService(serving(), v1, serving().Target([]byte("ca")))
	if skip := configuration.Spec.InsecureSkipTLSVerify; skip == nil || *skip {
		t.Errorf("insecureSkipTLSVerify is %v, want an explicit false", skip)
	}
	service := typed[apiregistrationv1.APIService](t, configuration)
	want := apiregistrationv1.APIServiceSpec{
		Service: &apiregistrationv1.ServiceReference{Namespace: "ns", Name: "metrics-serving-b", Port: ptr.To[int32](443)},
		Group:   "metrics.k8s.io", Version: "v1", CABundle: []byte("ca"),
		GroupPriorityMinimum: 100, VersionPriority: 200,
	}
	if diff := cmp.Diff(want, service.Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if service.Name != "v1.metrics.k8s.io" {
		t.Errorf("name %q", service.Name)
	}
	if other := APIService(serving(), v1beta1, serving().Target(nil)); *other.Spec.VersionPriority >= *configuration.Spec.VersionPriority {
		t.Errorf("priority of v1beta1 %d, of v1 %d: want v1 above", *other.Spec.VersionPriority, *configuration.Spec.VersionPriority)
	}
	custom := schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta2"}
	older := schema.GroupVersion{Group: custom.Group, Version: "v1beta1"}
	if a, b := APIService(serving(), custom, serving().Target(nil)), APIService(serving(), older, serving().Target(nil)); *a.Spec.VersionPriority <= *b.Spec.VersionPriority ||
		*a.Spec.GroupPriorityMinimum != 100 {
		t.Errorf("custom metrics: priority of v1beta2 %d, of v1beta1 %d: want v1beta2 above", *a.Spec.VersionPriority, *b.Spec.VersionPriority)
	}
	if got := APIServiceName(schema.GroupVersion{Group: "g.io", Version: "v2"}); got != "v2.g.io" {
		t.Errorf("name %q", got)
	}
}

// Only what each identity needs, and no wildcard but that of discovery.
func TestRules(t *testing.T) {
	type grant struct{ Role, Group, Resource, URL, Names, Verbs string }
	after := serving()
	after.RoleBefore = *typed[rbacv1.Role](t, Role(withSources(serving())))
	// What somebody added does not stay.
	for _, r := range []*rbacv1ac.PolicyRuleApplyConfiguration{
		rule([]string{""}, []string{"secrets"}, []string{"list", "watch"}),
		rule([]string{""}, []string{"secrets"}, []string{"get", "list", "watch"}).WithResourceNames("added"),
		rule([]string{""}, []string{"secrets", "configmaps"}, []string{"list", "watch"}).WithResourceNames("added"),
		rule([]string{"example.com"}, []string{"secrets"}, []string{"list", "watch"}).WithResourceNames("added"),
		rule([]string{""}, []string{"pods"}, []string{"list", "watch"}).WithResourceNames("added"),
		rule([]string{""}, []string{"serviceaccounts/token"}, []string{"create"}).WithResourceNames("added"),
	} {
		after.RoleBefore.Rules = append(after.RoleBefore.Rules, *typed[rbacv1.PolicyRule](t, r))
	}
	var got []grant
	for name, role := range map[string]any{
		"serving": ClusterRole(serving()), "scrape": ScrapeClusterRole(serving()), "prober": ProberClusterRole(serving()), "reader": ReaderClusterRole(serving()), "namespaced": Role(serving()),
		"namespaced, with sources": Role(withSources(serving())), "namespaced, as before": Role(after),
		"metricsapi": MetricsAPIClusterRole(serving()),
	} {
		for _, rule := range typed[rbacv1.ClusterRole](t, role).Rules {
			got = append(got, grant{name, strings.Join(rule.APIGroups, ","), strings.Join(rule.Resources, ","), strings.Join(rule.NonResourceURLs, ","), strings.Join(rule.ResourceNames, ","), strings.Join(rule.Verbs, ",")})
		}
	}
	slices.SortFunc(got, func(a, b grant) int { return strings.Compare(a.Role+a.Group+a.Resource, b.Role+b.Group+b.Resource) })
	want := []grant{
		{"namespaced", "discovery.k8s.io", "endpointslices", "", "", "get,list,watch"},
		{"namespaced", "", "serviceaccounts/token", "", "metrics-serving-b-scrape", "create"},
		{"namespaced, with sources", "discovery.k8s.io", "endpointslices", "", "", "get,list,watch"},
		{"namespaced, with sources", "", "serviceaccounts/token", "", "metrics-serving-b-scrape,metrics-serving-b-source,metrics-serving-b-metricsapi", "create"},
		{"namespaced, with sources", "", "secrets", "", "client,kedaorg-certs,mimir,mimir-ca,mimir-client", "list,watch"},
		{"namespaced, with sources", "", "configmaps", "", "company-bundle,trust-bundle", "list,watch"},
		{"namespaced, as before", "discovery.k8s.io", "endpointslices", "", "", "get,list,watch"},
		{"namespaced, as before", "", "serviceaccounts/token", "", "metrics-serving-b-scrape,metrics-serving-b-source,metrics-serving-b-metricsapi", "create"},
		{"namespaced, as before", "", "secrets", "", "client,kedaorg-certs,mimir,mimir-ca,mimir-client", "list,watch"},
		{"namespaced, as before", "", "configmaps", "", "company-bundle,trust-bundle", "list,watch"},
		{"metricsapi", "custom.metrics.k8s.io,external.metrics.k8s.io", "*", "", "", "get,list"},
		{"prober", "", "", "/apis,/apis/*,/sources,/consumers,/declared", "", "get"},
		{"prober", "metrics.k8s.io", "nodes,pods", "", "", "list"},
		{"reader", "metrics.k8s.io", "pods,nodes", "", "", "get,list,watch"},
		{"serving", "apiregistration.k8s.io", "apiservices", "", "", "list"},
		{"serving", "metricsbackend.io", "metricsbackends", "", "b", "get,list,watch"},
		{"serving", "metricsbackend.io", "custommetrics,externalmetrics,externalmetricspolicies", "", "", "get,list,watch"},
		{"serving", "", "nodes,pods", "", "", "get,list,watch"},
		{"scrape", "", "nodes/metrics", "", "", "get"},
	}
	slices.SortFunc(want, func(a, b grant) int { return strings.Compare(a.Role+a.Group+a.Resource, b.Role+b.Group+b.Resource) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, role := range []string{"view", "edit", "admin"} {
		if ReaderClusterRole(serving()).Labels["rbac.authorization.k8s.io/aggregate-to-"+role] != "true" {
			t.Errorf("readers are not aggregated into %s", role)
		}
	}
}

// Serving gets the Services of other implementations by name, and those of before while pods ask them.
func TestServicesOfSources(t *testing.T) {
	after := serving()
	after.ClusterRoleBefore = *typed[rbacv1.ClusterRole](t, ClusterRole(withSources(serving())))
	// What somebody added does not stay.
	for _, r := range []*rbacv1ac.PolicyRuleApplyConfiguration{
		rule([]string{""}, []string{"services"}, []string{"get"}),
		rule([]string{""}, []string{"services"}, []string{"get", "list"}).WithResourceNames("added"),
	} {
		after.ClusterRoleBefore.Rules = append(after.ClusterRoleBefore.Rules, *typed[rbacv1.PolicyRule](t, r))
	}
	more := after
	more.Sources = []v1alpha1.SourceSpec{{Name: "new", MetricsAPI: &v1alpha1.MetricsAPISource{Service: v1alpha1.ExistingService{Name: "datadog"}}}}
	get := func(names ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"get"}, ResourceNames: names}}
	}
	for name, tc := range map[string]struct {
		serving Serving
		want    []rbacv1.PolicyRule
	}{
		"without sources":                {serving: serving()},
		"with sources":                   {withSources(serving()), get("adapter", "keda-operator-metrics-apiserver")},
		"as before":                      {after, get("adapter", "keda-operator-metrics-apiserver")},
		"as before, and a source is new": {more, get("adapter", "datadog", "keda-operator-metrics-apiserver")},
	} {
		got := slices.DeleteFunc(typed[rbacv1.ClusterRole](t, ClusterRole(tc.serving)).Rules, func(r rbacv1.PolicyRule) bool { return !slices.Contains(r.Resources, "services") })
		if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The ClusterRole and its binding for other implementations come and go with their account.
func TestMetricsAPIAccess(t *testing.T) {
	before, other := serving(), serving()
	before.RoleBefore = *typed[rbacv1.Role](t, Role(withSources(serving())))
	other.RoleBefore = *typed[rbacv1.Role](t, Role(serving()))
	all := []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
	for name, tc := range map[string]struct {
		serving Serving
		want    []string
	}{
		"with sources":                 {withSources(serving()), all},
		"as before":                    {before, all},
		"without sources":              {serving: serving()},
		"without sources, also before": {serving: other},
	} {
		var got []string
		for _, object := range All(tc.serving) {
			if *object.GetName() == "metrics-serving-b-metricsapi" {
				got = append(got, *object.GetKind())
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestBindings(t *testing.T) {
	type binding struct{ Namespace, Role, Subject string }
	show := func(namespace string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) binding {
		var names []string
		for _, s := range subjects {
			names = append(names, s.Kind+" "+s.Namespace+"/"+s.Name)
		}
		return binding{namespace, ref.Kind + " " + ref.Name, strings.Join(names, ", ")}
	}
	var got []binding
	binds := func(s Serving, name string) bool {
		return slices.ContainsFunc(ClusterRoleBindings(s), func(b Object) bool { return *b.GetName() == name })
	}
	if binds(serving(), "metrics-serving-b-objects") {
		t.Error("without custom metrics, serving may list the objects that they describe")
	}
	none := serving()
	none.Scrapes = false
	if binds(none, "metrics-serving-b-scrape") {
		t.Error("kubelets may be scraped without resource metrics")
	}
	for _, b := range ClusterRoleBindings(withSources(serving())) {
		o := typed[rbacv1.ClusterRoleBinding](t, b)
		got = append(got, show("", o.RoleRef, o.Subjects))
	}
	for _, b := range []any{RoleBinding(serving()), AuthReaderBinding(serving())} {
		o := typed[rbacv1.RoleBinding](t, b)
		got = append(got, show(o.Namespace, o.RoleRef, o.Subjects))
	}
	want := []binding{
		{"", "ClusterRole metrics-serving-b", "ServiceAccount ns/metrics-serving-b"},
		{"", "ClusterRole system:auth-delegator", "ServiceAccount ns/metrics-serving-b"},
		{"", "ClusterRole metrics-serving-b-prober", "ServiceAccount ns/metrics-serving-b-prober"},
		{"", "ClusterRole metrics-backend-serving-objects", "ServiceAccount ns/metrics-serving-b"},
		{"", "ClusterRole metrics-serving-b-scrape", "ServiceAccount ns/metrics-serving-b-scrape"},
		{"", "ClusterRole metrics-serving-b-metricsapi", "ServiceAccount ns/metrics-serving-b-metricsapi"},
		{"ns", "Role metrics-serving-b", "ServiceAccount ns/metrics-serving-b"},
		{"kube-system", "Role extension-apiserver-authentication-reader", "ServiceAccount ns/metrics-serving-b"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Objects that an operator in another namespace would make under the same name say whose they
// are.
func TestInstallation(t *testing.T) {
	s := withSources(serving())
	s.Installation = "operator"
	shared := append(All(s), AdmissionPolicy(s), AdmissionPolicyBinding(s), APIService(s, KnownVersions()[0], s.Target(nil)))
	for _, object := range shared {
		meta := typed[metav1.PartialObjectMetadata](t, metadataOf(t, object))
		want := ""
		if meta.Namespace != s.Namespace {
			want = "operator"
		}
		if got := meta.Labels[v1alpha1.LabelInstallation]; got != want {
			t.Errorf("%s %s: installation %q, want %q", *object.GetKind(), meta.Name, got, want)
		}
	}
}

func TestSecrets(t *testing.T) {
	tls := typed[corev1.Secret](t, TLSSecret(serving(), []byte("cert"), []byte("key"), []byte("ca")))
	if diff := cmp.Diff(map[string][]byte{"tls.crt": []byte("cert"), "tls.key": []byte("key"), "ca.crt": []byte("ca")}, tls.Data); diff != "" {
		t.Errorf("TLS (-want +got):\n%s", diff)
	}
	ca := typed[corev1.Secret](t, CASecret(serving(), Authorities{Current: servingcert.KeyPair{Certificate: []byte("cert"), Key: []byte("key")}}))
	if ca.Name == tls.Name {
		t.Error("the authority's key is in the Secret that pods mount")
	}
	for _, volume := range deployment(t, serving()).Spec.Template.Spec.Volumes {
		if volume.Secret != nil && volume.Secret.SecretName != tls.Name {
			t.Errorf("pods mount Secret %s", volume.Secret.SecretName)
		}
	}
}
