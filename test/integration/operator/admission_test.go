// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics/policy"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	policedNamespace, unpolicedNamespace = "policed", "unpoliced"
	// canary is a metric that nobody may use once a policy is known to kube-apiserver.
	canary = "canary"
)

func withExternalMetrics(spec *v1alpha1.MetricsBackendSpec) {
	spec.Sources = []v1alpha1.SourceSpec{{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus.example:9090"}}}
	spec.ExternalMetrics = &v1alpha1.ExternalMetricsSpec{}
}

// external is a metric of an autoscaler.
func external(name string, selector *metav1.LabelSelector) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: name, Selector: selector},
		Target: autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: ptr.To(resource.MustParse("1"))},
	}}
}

func cpu(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(percent)},
	}}
}

func autoscaler(namespace string, metrics ...autoscalingv2.MetricSpec) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MaxReplicas:    3, Metrics: metrics,
		},
	}
}

func deny(metric string) v1alpha1.ExternalMetricsPolicyRule {
	return v1alpha1.ExternalMetricsPolicyRule{Metric: metric, Deny: true}
}

func allow(metric string, selector metav1.LabelSelector) v1alpha1.ExternalMetricsPolicyRule {
	return v1alpha1.ExternalMetricsPolicyRule{Metric: metric, Selector: &selector}
}

// police starts with a backend that serves external metrics and waits until the
// operator has put the admission policy in force.
func police(t *testing.T, suite *controlPlane) {
	t.Helper()
	createBackend(t, suite, newBackend("police", withExternalMetrics))
	waitAdmissionPolicy(t, suite)
}

func waitAdmissionPolicy(t *testing.T, suite *controlPlane) {
	t.Helper()
	outcome.Eventually(t, patience, "the admission policy's binding", func(ctx context.Context) error {
		return suite.admin.Get(ctx, client.ObjectKey{Name: manifests.AdmissionPolicyName}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{})
	})
}

// policies creates them and waits until kube-apiserver knows them all: it learns of
// them in order, and the last one denies the canary.
func policies(t *testing.T, suite *controlPlane, all ...v1alpha1.ExternalMetricsPolicy) {
	t.Helper()
	last := v1alpha1.ExternalMetricsPolicy{ObjectMeta: metav1.ObjectMeta{Name: "zz-canary"}}
	last.Spec.Rules = []v1alpha1.ExternalMetricsPolicyRule{deny(canary)}
	for _, object := range append(all, last) {
		create(t, suite, &object)
	}
	outcome.Eventually(t, patience, "the canary is refused", func(ctx context.Context) error {
		if err := suite.admin.Create(ctx, autoscaler(unpolicedNamespace, external(canary, nil)), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	outcome.Eventually(t, patience, "its status tells that its rules can be read", func(ctx context.Context) error {
		if err := suite.admin.Get(ctx, client.ObjectKeyFromObject(&last), &last); err != nil {
			return err
		}
		if last.Status.ObservedGeneration != last.Generation || !meta.IsStatusConditionTrue(last.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("%+v", last.Status)
		}
		return nil
	})
}

func policyOf(name string, spec v1alpha1.ExternalMetricsPolicySpec) v1alpha1.ExternalMetricsPolicy {
	return v1alpha1.ExternalMetricsPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func is(key, value string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func some(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

// An autoscaler is refused where a policy denies its metrics, with the policy's name.
func TestAdmissionOfAutoscalers(t *testing.T) {
	suite := take(t)
	police(t, suite)
	policies(t, suite,
		policyOf("queues", v1alpha1.ExternalMetricsPolicySpec{Namespaces: []string{policedNamespace}, Rules: []v1alpha1.ExternalMetricsPolicyRule{
			allow("queue_public_.*", metav1.LabelSelector{}),
			allow("queue_team_.*|a/b", is("team", "shop")),
			deny("queue_.*"),
			// Never reached: the first match decides.
			deny("queue_public_depth"),
		}}),
		policyOf("everywhere", v1alpha1.ExternalMetricsPolicySpec{Rules: []v1alpha1.ExternalMetricsPolicyRule{deny("billing")}}),
		policyOf("by-user", v1alpha1.ExternalMetricsPolicySpec{
			Subjects: []v1alpha1.PolicySubject{{Kind: v1alpha1.PolicySubjectUser, Name: "jane"}, {Kind: v1alpha1.PolicySubjectGroup, Name: "team-b"}},
			Rules:    []v1alpha1.ExternalMetricsPolicyRule{deny("secret_of_a")},
		}),
		policyOf("of-the-controller", v1alpha1.ExternalMetricsPolicySpec{
			Subjects: []v1alpha1.PolicySubject{{Kind: v1alpha1.PolicySubjectUser, Name: "system:serviceaccount:kube-system:horizontal-pod-autoscaler"}},
			Rules:    []v1alpha1.ExternalMetricsPolicyRule{deny("not_for_autoscalers")},
		}),
	)
	shop, other := is("team", "shop"), is("team", "other")
	cases := map[string]struct {
		namespace string
		user      *rest.ImpersonationConfig
		metrics   []autoscalingv2.MetricSpec
		refused   string
	}{
		"no external metric":        {metrics: []autoscalingv2.MetricSpec{cpu(50)}},
		"of no policy":              {metrics: []autoscalingv2.MetricSpec{external("requests", nil)}},
		"the first match allows":    {metrics: []autoscalingv2.MetricSpec{external("queue_public_depth", nil)}},
		"denied":                    {metrics: []autoscalingv2.MetricSpec{external("queue_depth", nil)}, refused: `ExternalMetricsPolicy "queues" denies external metric "queue_depth" in namespace "policed" (its rule for "queue_.*"): take the metric out`},
		"denied among others":       {metrics: []autoscalingv2.MetricSpec{cpu(50), external("requests", nil), external("queue_depth", nil)}, refused: `"queue_depth"`},
		"another namespace":         {namespace: unpolicedNamespace, metrics: []autoscalingv2.MetricSpec{external("queue_depth", nil)}},
		"the name is matched whole": {metrics: []autoscalingv2.MetricSpec{external("my_queue_depth", nil), external("billings", nil)}},
		"any namespace":             {namespace: unpolicedNamespace, metrics: []autoscalingv2.MetricSpec{external("billing", nil)}, refused: `"everywhere" denies external metric "billing" in namespace "unpoliced"`},
		"the selector":              {metrics: []autoscalingv2.MetricSpec{external("queue_team_depth", &shop)}},
		"no selector":               {metrics: []autoscalingv2.MetricSpec{external("queue_team_depth", nil)}, refused: `"queues" allows external metric "queue_team_depth" in namespace "policed" only for a subset of the selector of its rule for "queue_team_.*|a/b"`},
		"another selector":          {metrics: []autoscalingv2.MetricSpec{external("queue_team_depth", &other)}, refused: "kubectl get externalmetricspolicy queues -o yaml"},
		"an escaped slash":          {metrics: []autoscalingv2.MetricSpec{external(`a\|b`, &other)}, refused: `external metric "a/b"`},
		"a subject writes it":       {user: &rest.ImpersonationConfig{UserName: "jane", Groups: []string{"system:masters"}}, metrics: []autoscalingv2.MetricSpec{external("secret_of_a", nil)}, refused: `"by-user"`},
		"one of its group writes":   {user: &rest.ImpersonationConfig{UserName: "joe", Groups: []string{"system:masters", "team-b"}}, metrics: []autoscalingv2.MetricSpec{external("secret_of_a", nil)}, refused: `"by-user"`},
		"someone else writes it":    {metrics: []autoscalingv2.MetricSpec{external("secret_of_a", nil)}},
		"the controller's":          {metrics: []autoscalingv2.MetricSpec{external("not_for_autoscalers", nil)}, refused: `"of-the-controller"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			writer := client.Client(suite.admin)
			if tc.user != nil {
				config := rest.CopyConfig(suite.config)
				config.Impersonate = *tc.user
				var err error
				if writer, err = client.New(config, client.Options{Scheme: suite.admin.Scheme()}); err != nil {
					t.Fatal(err)
				}
			}
			namespace := tc.namespace
			if namespace == "" {
				namespace = policedNamespace
			}
			err := writer.Create(t.Context(), autoscaler(namespace, tc.metrics...), client.DryRunAll)
			wantRefusal(t, err, tc.refused)
			if tc.refused != "" && !apierrors.IsForbidden(err) {
				t.Errorf("not a 403: %v", err)
			}
		})
	}
	t.Run("in the older version", func(t *testing.T) {
		err := suite.admin.Create(t.Context(), &autoscalingv1.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: policedNamespace, Name: "old", Annotations: map[string]string{
				"autoscaling.alpha.kubernetes.io/metrics": `[{"type":"External","external":{"metricName":"queue_depth","targetValue":"1"}}]`,
			}},
			Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 3,
			},
		}, client.DryRunAll)
		wantRefusal(t, err, `"queue_depth"`)
	})
	// As kube-controller-manager does, which none runs here.
	t.Run("the expressions fit the types", func(t *testing.T) {
		object := &admissionregistrationv1.ValidatingAdmissionPolicy{}
		if err := suite.admin.Get(t.Context(), client.ObjectKey{Name: manifests.AdmissionPolicyName}, object); err != nil {
			t.Fatal(err)
		}
		schemas, err := discovery.NewDiscoveryClientForConfig(suite.config)
		if err != nil {
			t.Fatal(err)
		}
		checker := &validating.TypeChecker{
			SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: schemas}, RestMapper: suite.admin.RESTMapper(),
		}
		for _, warning := range checker.Check(object) {
			t.Errorf("%s: %s", warning.FieldRef, warning.Warning)
		}
	})
}

// An autoscaler that was there before a policy is not locked: only metrics that it
// did not have are judged.
func TestAdmissionLeavesOldMetrics(t *testing.T) {
	suite := take(t)
	police(t, suite)
	old := autoscaler(policedNamespace, cpu(50), external("queue_depth", nil))
	create(t, suite, old)
	policies(t, suite, policyOf("queues", v1alpha1.ExternalMetricsPolicySpec{Rules: []v1alpha1.ExternalMetricsPolicyRule{deny("queue_.*")}}))
	cases := map[string]struct {
		change  func(*autoscalingv2.HorizontalPodAutoscaler)
		refused string
	}{
		"a label":                 {change: func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Labels = map[string]string{"a": "b"} }},
		"the replicas":            {change: func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MaxReplicas = 9 }},
		"another metric's target": {change: func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.Metrics[0] = cpu(80) }},
		"its own target": {change: func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Spec.Metrics[1].External.Target.Value = ptr.To(resource.MustParse("7"))
		}},
		"a metric that is allowed": {change: func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Spec.Metrics = append(h.Spec.Metrics, external("requests", nil))
		}},
		"it goes": {change: func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.Metrics = h.Spec.Metrics[:1] }},
		"a metric that is denied": {change: func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Spec.Metrics = append(h.Spec.Metrics, external("queue_age", nil))
		}, refused: `"queue_age"`},
		"the same with a selector": {change: func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Spec.Metrics[1].External.Metric.Selector = ptr.To(is("a", "b"))
		}, refused: `"queue_depth"`},
		"a finalizer, as on its end": {change: func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Finalizers = []string{"example.com/a"} }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			changed := old.DeepCopy()
			tc.change(changed)
			wantRefusal(t, suite.admin.Update(t.Context(), changed, client.DryRunAll), tc.refused)
		})
	}
	t.Run("its status", func(t *testing.T) {
		changed := old.DeepCopy()
		changed.Status.DesiredReplicas = 2
		if err := suite.admin.Status().Update(t.Context(), changed, client.DryRunAll); err != nil {
			t.Error(err)
		}
	})
}

// What admission refuses serving denies; and what serving denies admission refuses,
// but for a label whose value may be empty.
func TestAdmissionDecidesAsServing(t *testing.T) {
	suite := take(t)
	police(t, suite)
	selectors := []metav1.LabelSelector{
		{}, is("a", "1"), is("a", "2"), is("a", ""), is("b", "1"),
		{MatchLabels: map[string]string{"a": "1", "b": "1"}},
		some("a", metav1.LabelSelectorOpIn, "1", "2"), some("a", metav1.LabelSelectorOpIn, "1", ""), some("a", metav1.LabelSelectorOpNotIn, "1"),
		some("a", metav1.LabelSelectorOpNotIn, "1", "2"), some("a", metav1.LabelSelectorOpNotIn, "3"), some("a", metav1.LabelSelectorOpNotIn, ""),
		some("a", metav1.LabelSelectorOpExists), some("a", metav1.LabelSelectorOpDoesNotExist), some("b", metav1.LabelSelectorOpDoesNotExist),
		{MatchLabels: map[string]string{"a": "1"}, MatchExpressions: some("a", metav1.LabelSelectorOpNotIn, "1").MatchExpressions},
		{MatchExpressions: append(some("a", metav1.LabelSelectorOpIn, "1", "2").MatchExpressions, some("a", metav1.LabelSelectorOpNotIn, "2").MatchExpressions...)},
		{MatchExpressions: append(some("a", metav1.LabelSelectorOpIn, "1", "2", "3").MatchExpressions, some("a", metav1.LabelSelectorOpIn, "2", "3", "4").MatchExpressions...)},
		{MatchExpressions: append(some("a", metav1.LabelSelectorOpNotIn, "1").MatchExpressions, some("a", metav1.LabelSelectorOpNotIn, "2").MatchExpressions...)},
		{MatchExpressions: append(some("a", metav1.LabelSelectorOpExists).MatchExpressions, some("a", metav1.LabelSelectorOpNotIn, "1").MatchExpressions...)},
		{MatchExpressions: append(some("a", metav1.LabelSelectorOpExists).MatchExpressions, some("a", metav1.LabelSelectorOpDoesNotExist).MatchExpressions...)},
	}
	bound := policyOf("selectors", v1alpha1.ExternalMetricsPolicySpec{})
	for i, selector := range selectors {
		bound.Spec.Rules = append(bound.Spec.Rules, allow(fmt.Sprintf("m%d", i), selector))
	}
	policies(t, suite, bound)
	set, err := policy.Compile([]v1alpha1.ExternalMetricsPolicy{bound})
	if err != nil {
		t.Fatal(err)
	}
	var compared, refusals, doubts int
	for i := range selectors {
		for j := range selectors {
			name, queried := fmt.Sprintf("m%d", i), selectors[j]
			query, err := metav1.LabelSelectorAsSelector(&queried)
			if err != nil {
				t.Fatal(err)
			}
			denial := set.Check(policy.Query{Namespace: policedNamespace, Metric: name, Selector: query})
			err = suite.admin.Create(t.Context(), autoscaler(policedNamespace, external(name, &queried)), client.DryRunAll)
			if err != nil && !apierrors.IsForbidden(err) {
				t.Fatal(err)
			}
			compared++
			if err != nil {
				refusals++
			}
			switch {
			case err != nil && denial == nil:
				t.Errorf("rule %q, query %q: refused although serving allows it: %v", metav1.FormatLabelSelector(&selectors[i]), query, err)
			case err == nil && denial != nil && hasEmptyValue(queried):
				doubts++
			case err == nil && denial != nil:
				t.Errorf("rule %q, query %q: admitted although serving denies it: %v", metav1.FormatLabelSelector(&selectors[i]), query, denial)
			}
		}
	}
	t.Logf("%d pairs, %d refused, %d in doubt", compared, refusals, doubts)
	if refusals == 0 || refusals == compared {
		t.Error("nothing was compared")
	}
}

// Whatever the case of the name in an autoscaler and of the metric that it turns out to mean, what
// admission refuses serving denies. Serving denies more only where a rule allows another case.
func TestAdmissionOfCapitalLetters(t *testing.T) {
	suite := take(t)
	police(t, suite)
	spellings := []string{"queue", "Queue", "QUEUE"}
	expressions := append(slices.Clone(spellings), "q.*", "[A-Z]ueue")
	team, everything := is("a", "1"), metav1.LabelSelector{}
	type pair struct {
		first, second v1alpha1.ExternalMetricsPolicyRule
		prefix        string
	}
	var pairs []pair
	for i, expression := range expressions {
		for j, other := range expressions {
			for k, rules := range [][2]v1alpha1.ExternalMetricsPolicyRule{
				{deny(expression), allow(other, everything)}, {allow(expression, everything), deny(other)}, {allow(expression, team), deny(other)}, {allow(expression, team), allow(other, everything)},
			} {
				prefix := fmt.Sprintf("p%d_%d_%d_", i, j, k)
				for n := range rules {
					rules[n].Metric = "(?:" + prefix + ")(?:" + rules[n].Metric + ")"
				}
				pairs = append(pairs, pair{rules[0], rules[1], prefix})
			}
		}
	}
	var all []v1alpha1.ExternalMetricsPolicy
	for chunk := range slices.Chunk(pairs, 50) { // a policy has at most 100 rules
		spec := v1alpha1.ExternalMetricsPolicySpec{}
		for _, p := range chunk {
			spec.Rules = append(spec.Rules, p.first, p.second)
		}
		all = append(all, policyOf(fmt.Sprintf("case-%d", len(all)), spec))
	}
	policies(t, suite, all...)
	set, err := policy.Compile(all)
	if err != nil {
		t.Fatal(err)
	}
	var refusals, denials int
	for _, p := range pairs {
		for _, written := range spellings {
			for _, selector := range []metav1.LabelSelector{everything, team} {
				query, err := metav1.LabelSelectorAsSelector(&selector)
				if err != nil {
					t.Fatal(err)
				}
				denied := 0
				for _, name := range spellings {
					if set.Check(policy.Query{Namespace: policedNamespace, Metric: p.prefix + name, Selector: query}) != nil {
						denied++
					}
				}
				err = suite.admin.Create(t.Context(), autoscaler(policedNamespace, external(p.prefix+written, &selector)), client.DryRunAll)
				if err != nil && !apierrors.IsForbidden(err) {
					t.Fatal(err)
				}
				if err != nil {
					refusals++
				}
				if denied == len(spellings) {
					denials++
				}
				switch certain := p.first.Deny || len(p.first.Selector.MatchLabels) > 0; {
				case err != nil && denied < len(spellings):
					t.Errorf("rules %q and %q, %q with %q: refused although serving allows it in some case: %v", p.first.Metric, p.second.Metric, written, query, err)
				case err == nil && denied == len(spellings) && certain && query.Empty():
					t.Errorf("rules %q and %q, %q with %q: admitted although serving denies it in any case", p.first.Metric, p.second.Metric, written, query)
				}
			}
		}
	}
	t.Logf("%d pairs of rules, %d refused, %d denied in any case", len(pairs), refusals, denials)
	if refusals == 0 {
		t.Error("nothing was refused")
	}
}

// hasEmptyValue reports whether a selector asks for a label whose value is empty, among others.
func hasEmptyValue(selector metav1.LabelSelector) bool {
	empty := func(e metav1.LabelSelectorRequirement) bool { return slices.Contains(e.Values, "") }
	return slices.Contains(slices.Collect(maps.Values(selector.MatchLabels)), "") || slices.ContainsFunc(selector.MatchExpressions, empty)
}

// A policy that kube-apiserver cannot evaluate stops nobody, and no other policy;
// nor does the loss of their CRD. Its end with the MetricsBackend frees everybody.
func TestAdmissionFailsOpen(t *testing.T) {
	suite := take(t)
	police(t, suite)
	quotation := `\Qa.b` // an open quotation: it compiles, and cannot be anchored in CEL
	policies(t, suite,
		policyOf("broken", v1alpha1.ExternalMetricsPolicySpec{Rules: []v1alpha1.ExternalMetricsPolicyRule{deny(quotation), deny(".*")}}),
		policyOf("sound", v1alpha1.ExternalMetricsPolicySpec{Rules: []v1alpha1.ExternalMetricsPolicyRule{deny("queue_.*")}}),
	)
	create := func(metric string) error {
		return suite.admin.Create(context.Background(), autoscaler(policedNamespace, external(metric, nil)), client.DryRunAll)
	}
	wantRefusal(t, create("requests"), "")
	wantRefusal(t, create("queue_depth"), `"sound"`)
	t.Run("a regular expression that is none", func(t *testing.T) {
		object := policyOf("none", v1alpha1.ExternalMetricsPolicySpec{Rules: []v1alpha1.ExternalMetricsPolicyRule{deny("a(")}})
		wantRefusal(t, suite.admin.Create(t.Context(), &object), "metric must be a regular expression")
	})
	t.Run("the CRD goes", func(t *testing.T) {
		const crd = "config/crd/bases/metricsbackend.io_externalmetricspolicies.yaml"
		restore := func() {
			mustKubectl(t, suite, "apply", "--server-side", "-f", crd)
			mustKubectl(t, suite, "wait", "--for=condition=Established", "--timeout=60s", "-f", crd)
		}
		mustKubectl(t, suite, "delete", "-f", crd, "--timeout=60s")
		t.Cleanup(restore)
		outcome.Eventually(t, patience, "autoscalers are made as ever", func(context.Context) error { return create("queue_depth") })
		outcome.Eventually(t, patience, "the admission policy is gone", func(ctx context.Context) error {
			err := suite.admin.Get(ctx, client.ObjectKey{Name: manifests.AdmissionPolicyName}, &admissionregistrationv1.ValidatingAdmissionPolicy{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %v", err)
			}
			return nil
		})
	})
	waitAdmissionPolicy(t, suite)
	deleteBackend(t, suite, "police")
	for _, object := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}} {
		if err := suite.admin.Get(t.Context(), client.ObjectKey{Name: manifests.AdmissionPolicyName}, object); !apierrors.IsNotFound(err) {
			outcome.Unsafe(t, "%T is still there after its MetricsBackend: %v", object, err)
		}
	}
	outcome.Eventually(t, patience, "autoscalers are free", func(context.Context) error { return create("queue_depth") })
}

// The largest policy that its CRD takes, and an autoscaler with more metrics than
// anybody has, stay within the budget that kube-apiserver gives to CEL: beyond it,
// everything would pass.
func TestAdmissionStaysWithinBudget(t *testing.T) {
	suite := take(t)
	police(t, suite)
	large := policyOf("large", v1alpha1.ExternalMetricsPolicySpec{})
	for i := range 99 {
		large.Spec.Rules = append(large.Spec.Rules, allow(fmt.Sprintf("team_%d_[a-z0-9_]+|(queue|topic)_of_%d_.*", i, i), metav1.LabelSelector{
			MatchLabels:      map[string]string{"team": fmt.Sprint(i)},
			MatchExpressions: append(some("env", metav1.LabelSelectorOpIn, "a", "b", "c").MatchExpressions, some("tier", metav1.LabelSelectorOpExists).MatchExpressions...),
		}))
	}
	large.Spec.Rules = append(large.Spec.Rules, deny(".*_denied"))
	policies(t, suite, large)
	metrics := make([]autoscalingv2.MetricSpec, 30)
	selector := metav1.LabelSelector{
		MatchLabels:      map[string]string{"team": "98", "env": "a", "queue": "orders"},
		MatchExpressions: some("tier", metav1.LabelSelectorOpIn, "x", "y", "z").MatchExpressions,
	}
	for i := range metrics {
		metrics[i] = external(fmt.Sprintf("queue_of_98_requests_waiting_for_delivery_%d", i), &selector)
	}
	wantRefusal(t, suite.admin.Create(t.Context(), autoscaler(policedNamespace, metrics...), client.DryRunAll), "")
	denied := slices.Concat(metrics[:29], []autoscalingv2.MetricSpec{external("last_denied", nil)})
	wantRefusal(t, suite.admin.Create(t.Context(), autoscaler(policedNamespace, denied...), client.DryRunAll), `"last_denied"`)
	wider := slices.Concat(metrics[:29], []autoscalingv2.MetricSpec{external("queue_of_98_last", nil)})
	wantRefusal(t, suite.admin.Create(t.Context(), autoscaler(policedNamespace, wider...), client.DryRunAll), `"queue_of_98_last"`)
}
