// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistrationv1ac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// AdmissionPolicyName is the name of the ValidatingAdmissionPolicy and of its binding. It is
// the same in every cluster, so that the operator's RBAC can be limited to these objects.
const AdmissionPolicyName = "external-metrics-policies.metricsbackend.io"

// AdmissionPolicy rejects HorizontalPodAutoscalers whose external metrics an
// ExternalMetricsPolicy denies, so that their authors see the error before the autoscaler's
// events do. Each policy is evaluated separately, so they combine by AND.
//
// It rejects nothing that serving would allow (docs/tasks/external-metrics-admission.md has an exception):
// serving decides again on each query, and what CEL cannot decide passes, such as a label whose value
// may be empty, or a name after a regular expression that does not compile. Names match in any case,
// since autoscalers ask in lower case and only serving knows the metric's: there, too, a rule in
// another case denies.
func AdmissionPolicy(s Serving) *admissionregistrationv1ac.ValidatingAdmissionPolicyApplyConfiguration {
	return admissionregistrationv1ac.ValidatingAdmissionPolicy(AdmissionPolicyName).
		WithLabels(s.SharedLabels()).
		WithSpec(admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			// Without the CRD or this operator, autoscalers are not affected.
			WithFailurePolicy(admissionregistrationv1.Ignore).
			WithParamKind(admissionregistrationv1ac.ParamKind().
				WithAPIVersion(v1alpha1.GroupVersion.String()).
				WithKind("ExternalMetricsPolicy")).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().
				// Requests in other versions are converted to this one.
				WithMatchPolicy(admissionregistrationv1.Equivalent).
				WithNamespaceSelector(metav1ac.LabelSelector()).
				WithObjectSelector(metav1ac.LabelSelector()).
				WithResourceRules(admissionregistrationv1ac.NamedRuleWithOperations().
					WithOperations(admissionregistrationv1.Create, admissionregistrationv1.Update).
					WithAPIGroups("autoscaling").
					WithAPIVersions("v2").
					WithResources("horizontalpodautoscalers").
					WithScope(admissionregistrationv1.NamespacedScope))).
			WithMatchConditions(admissionregistrationv1ac.MatchCondition().
				WithName("asks-for-external-metrics").
				WithExpression("has(object.spec.metrics) && object.spec.metrics.exists(m, m.type == 'External')")).
			WithVariables(
				variable("before", celBefore),
				variable("asked", celAsked),
				variable("binds", celBinds),
				variable("decided", celDecided),
				variable("denied", celDenied),
				variable("wider", celWider),
			).
			WithValidations(
				admissionregistrationv1ac.Validation().
					WithExpression("!variables.binds || size(variables.denied) == 0").
					WithMessageExpression(celDeniedMessage).
					WithMessage("an ExternalMetricsPolicy denies an external metric of this HorizontalPodAutoscaler").
					WithReason(metav1.StatusReasonForbidden),
				admissionregistrationv1ac.Validation().
					WithExpression("!variables.binds || size(variables.wider) == 0").
					WithMessageExpression(celWiderMessage).
					WithMessage("an ExternalMetricsPolicy allows an external metric of this HorizontalPodAutoscaler only with a narrower selector").
					WithReason(metav1.StatusReasonForbidden),
			))
}

// AdmissionPolicyBinding binds the policy to every ExternalMetricsPolicy.
func AdmissionPolicyBinding(s Serving) *admissionregistrationv1ac.ValidatingAdmissionPolicyBindingApplyConfiguration {
	return admissionregistrationv1ac.ValidatingAdmissionPolicyBinding(AdmissionPolicyName).
		WithLabels(s.SharedLabels()).
		WithSpec(admissionregistrationv1ac.ValidatingAdmissionPolicyBindingSpec().
			WithPolicyName(AdmissionPolicyName).
			WithParamRef(admissionregistrationv1ac.ParamRef().
				WithSelector(metav1ac.LabelSelector()).
				// No policy means allowed.
				WithParameterNotFoundAction(admissionregistrationv1.AllowAction)).
			WithValidationActions(admissionregistrationv1.Deny))
}

func variable(name, expression string) *admissionregistrationv1ac.VariableApplyConfiguration {
	return admissionregistrationv1ac.Variable().WithName(name).WithExpression(oneLine(expression))
}

// oneLine removes the line breaks of an expression.
func oneLine(expression string) string { return strings.Join(strings.Fields(expression), " ") }

const (
	// celBefore are the autoscaler's former metrics: a new policy does not prevent changes
	// of other fields.
	celBefore = `
		oldObject != null && has(oldObject.spec.metrics)
		? oldObject.spec.metrics.filter(m, m.type == 'External' && has(m.external)).map(m, m.external.metric)
		: []`
	celAsked = `
		object.spec.metrics.filter(m, m.type == 'External' && has(m.external) && !(m.external.metric in variables.before))
		.map(m, m.external.metric)`
	// celBinds reports whether the policy applies: to the subjects that it names, as
	// authors of the autoscaler, since the later queries are the HPA controller's; and to
	// everybody if it names that controller, which has one of two names.
	celBinds = `
		(!has(params.spec.namespaces) || size(params.spec.namespaces) == 0 || request.namespace in params.spec.namespaces)
		&& (!has(params.spec.subjects) || size(params.spec.subjects) == 0 || params.spec.subjects.exists(s,
			s.kind == 'User'
			? s.name in [request.userInfo.username, 'system:serviceaccount:kube-system:horizontal-pod-autoscaler', 'system:kube-controller-manager']
			: has(request.userInfo.groups) && s.name in request.userInfo.groups))`
	// celDecided is each metric with the rules that match its whole name in any case (the first
	// one decides), and with the requirements of its selector.
	celDecided = `
		variables.asked.map(m, {
			'name': dyn(m.name.replace('\\|', '/')),
			'rules': dyn(params.spec.rules.filter(r, m.name.replace('\\|', '/').matches('(?i)^(?:' + r.metric + ')$'))),
			'query': dyn(
				(has(m.selector) && has(m.selector.matchLabels)
					? m.selector.matchLabels.map(k, {'key': dyn(k), 'operator': dyn('In'), 'values': dyn([m.selector.matchLabels[k]])}) : [])
				+ (has(m.selector) && has(m.selector.matchExpressions)
					? m.selector.matchExpressions.map(e, {'key': dyn(e.key), 'operator': dyn(e.operator), 'values': dyn(has(e.values) ? e.values : [])}) : []))
		})`
	celDenied = `
		variables.decided.filter(d, size(d.rules) > 0
			&& (has(d.rules[0].deny) && d.rules[0].deny || !has(d.rules[0].selector)))`
	// celWider are the metrics whose query selects more than the deciding rule's selector.
	// A query that contradicts itself selects nothing, and passes. Otherwise each of the
	// rule's requirements must follow from the query's requirements of the same label. A
	// value is possible if it meets all of these.
	celWider = `
		variables.decided.filter(d, size(d.rules) > 0 && has(d.rules[0].selector) && !(has(d.rules[0].deny) && d.rules[0].deny)
			&& !d.query.exists(c,
				c.operator == 'In' && !c.values.exists(v, ` + celPossible + `)
				|| c.operator == 'DoesNotExist' && d.query.exists(e, e.key == c.key && e.operator == 'Exists'))
			&& (
				(has(d.rules[0].selector.matchLabels)
					? d.rules[0].selector.matchLabels.map(k, {'key': dyn(k), 'operator': dyn('In'), 'values': dyn([d.rules[0].selector.matchLabels[k]])}) : [])
				+ (has(d.rules[0].selector.matchExpressions)
					? d.rules[0].selector.matchExpressions.map(e, {'key': dyn(e.key), 'operator': dyn(e.operator), 'values': dyn(has(e.values) ? e.values : [])}) : [])
			).exists(c,
				c.operator == 'In' ? (` + celListed + `
					? d.query.exists(q, q.key == c.key && q.operator == 'In'
						&& q.values.exists(v, v != '' && !(v in c.values) && ` + celPossible + `))
					: true)
				: c.operator == 'NotIn' ? (` + celListed + `
					? c.values.exists(v, d.query.exists(q, q.key == c.key && q.operator == 'In' && v in q.values) && ` + celPossible + `)
					: !d.query.exists(q, q.key == c.key && q.operator == 'DoesNotExist')
						&& !c.values.all(v, d.query.exists(q, q.key == c.key && q.operator == 'NotIn' && v in q.values)))
				: c.operator == 'Exists' ? !d.query.exists(q, q.key == c.key && (q.operator == 'Exists' || q.operator == 'In'))
				: c.operator == 'DoesNotExist' ? !d.query.exists(q, q.key == c.key && q.operator == 'DoesNotExist')
				: false))`
	// celListed reports whether the query d lists the values of c.key.
	celListed = `d.query.exists(q, q.key == c.key && q.operator == 'In')`
	// celPossible reports whether v meets all requirements of the query d for c.key.
	celPossible = `d.query.all(e, e.key != c.key || e.operator == 'Exists'
		|| (e.operator == 'In' && v in e.values) || (e.operator == 'NotIn' && !(v in e.values)))`

	celDeniedMessage = `'ExternalMetricsPolicy "' + params.metadata.name + '" denies external metric "' + variables.denied[0].name + '" in namespace "' + request.namespace + '" (its rule for "' + variables.denied[0].rules[0].metric + '"): take the metric out, or ask an administrator to change the policy'`
	celWiderMessage  = `'ExternalMetricsPolicy "' + params.metadata.name + '" allows external metric "' + variables.wider[0].name + '" in namespace "' + request.namespace + '" only for a subset of the selector of its rule for "' + variables.wider[0].rules[0].metric + '": add that selector to the metric\'s (kubectl get externalmetricspolicy ' + params.metadata.name + ' -o yaml)'`
)
