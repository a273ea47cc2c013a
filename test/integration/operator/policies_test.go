// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// stamps is what a webhook does that marks each change that it sees, as with a hash of the request or the time: here with
// the resourceVersion before. Pod templates get the mark, too.
const stamps = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: stamp}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: ["*"]}
  matchConditions:
  - {name: operator, expression: "request.userInfo.username.endsWith(':metrics-backend-operator')"}
  - {name: ours, expression: "object.metadata.?labels['metricsbackend.io/backend'].orValue('') == 'stamped' && object.kind != 'MetricsBackend'"}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >
        Object{metadata: Object.metadata{annotations: {"example.com/stamp": oldObject == null ? "new" : oldObject.metadata.resourceVersion}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: stamp}
spec: {policyName: stamp}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: stamp-templates}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments]}
  matchConditions:
  - {name: operator, expression: "request.userInfo.username.endsWith(':metrics-backend-operator')"}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >
        [JSONPatch{op: "add", path: "/spec/template/metadata/annotations/stamp", value: oldObject.metadata.resourceVersion}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: stamp-templates}
spec: {policyName: stamp-templates}
`

// requiresLabel is a usual rule of Kyverno's and Gatekeeper's libraries, here for all objects.
const requiresLabel = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: requires-label}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: ["*"]}
  matchConditions:
  - {name: ours, expression: "object.metadata.?labels['metricsbackend.io/backend'].orValue('') == 'labelled'"}
  validations:
  - {expression: "'cost-center' in object.metadata.labels", message: "the label cost-center is required"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: requires-label}
spec: {policyName: requires-label, validationActions: [Deny]}
`

// assignsUsers is what OpenShift's restricted-v2 refuses.
const assignsUsers = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: assigns-users}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions:
  - {name: ours, expression: "object.metadata.?labels['metricsbackend.io/backend'].orValue('') == 'assigned'"}
  variables:
  - {name: context, expression: object.spec.securityContext}
  validations:
  - expression: "[variables.context.?runAsUser, variables.context.?runAsGroup, variables.context.?fsGroup].all(id, id.orValue(1000700000) >= 1000700000)"
    message: "runAsUser and fsGroup must be in [1000700000, 1000709999]"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: assigns-users}
spec: {policyName: assigns-users, validationActions: [Deny]}
`

// TestPoliciesRefuseWhatIsApplied: a backend that a policy stops says so, and a change of its spec is enough to make it ready.
func TestPoliciesRefuseWhatIsApplied(t *testing.T) {
	suite := take(t)
	for name, tc := range map[string]struct {
		policy, backend string
		condition       metav1.Condition
		messages        []string
		meet            func(*v1alpha1.ServingSpec)
	}{
		"a label is required": {
			policy: requiresLabel, backend: "labelled",
			condition: metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInvalid},
			messages:  []string{"the label cost-center is required", "correct the spec"},
			meet:      func(s *v1alpha1.ServingSpec) { s.Labels = map[string]string{"cost-center": "42"} },
		},
		"users are assigned": {
			policy: assignsUsers, backend: "assigned",
			condition: metav1.Condition{Type: v1alpha1.ConditionServingReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRolloutFailed},
			messages: []string{
				"runAsUser and fsGroup must be in [1000700000, 1000709999]",
				"kubectl rollout restart -n metrics-backend-system deployment/metrics-serving-assigned",
			},
			meet: func(s *v1alpha1.ServingSpec) { s.UserFromPlatform = true },
		},
	} {
		t.Run(name, func(t *testing.T) {
			applyYAML(t, suite, tc.policy)
			t.Cleanup(func() { _, _ = kubectl(suite, "delete", "-f", writeYAML(t, tc.policy)) })
			outcome.Eventually(t, patience, "the policy is in force", func(ctx context.Context) error {
				refused := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "refused", Labels: map[string]string{v1alpha1.LabelBackend: tc.backend}},
					Spec:       podTemplate(t, servingOf(func(*v1alpha1.ServingSpec) {})).Spec,
				}
				if err := suite.admin.Create(ctx, refused, client.DryRunAll); err == nil || !strings.Contains(err.Error(), tc.messages[0]) {
					return fmt.Errorf("a pod of ours is not refused: %v", err)
				}
				return nil
			})
			createBackend(t, suite, newBackend(tc.backend, func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.NetworkPolicy = v1alpha1.NetworkPolicyRestricted }))
			backend := waitCondition(t, suite, tc.backend, tc.condition.Type, tc.condition.Status, tc.condition.Reason)
			for _, want := range tc.messages {
				if got := condition(backend, tc.condition.Type).Message; !strings.Contains(got, want) {
					t.Errorf("message %q, want %q in it", got, want)
				}
			}
			changeBackend(t, suite, tc.backend, func(spec *v1alpha1.MetricsBackendSpec) { tc.meet(&spec.Serving) })
			waitReady(t, suite, tc.backend)
		})
	}
}

// TestPoliciesChangeWhatIsApplied: where policies change each object that the operator writes, each change of the spec is
// one rollout, and nothing is written afterwards, whatever happens to statuses.
func TestPoliciesChangeWhatIsApplied(t *testing.T) {
	suite := take(t)
	applyYAML(t, suite, stamps)
	t.Cleanup(func() { _, _ = kubectl(suite, "delete", "-f", writeYAML(t, stamps)) })
	createBackend(t, suite, newBackend("stamped"))
	waitReady(t, suite, "stamped")
	settled(t, suite)
	key := client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-stamped"}
	deployment := func(ctx context.Context) (*appsv1.Deployment, error) {
		d := &appsv1.Deployment{}
		return d, suite.admin.Get(ctx, key, d)
	}
	var before *appsv1.Deployment
	// The policy may be in force a moment after it was stored.
	outcome.Eventually(t, patience, "the policies are in force", func(ctx context.Context) (err error) {
		label := strconv.FormatInt(time.Now().UnixNano(), 36)
		backend := getBackend(t, suite, "stamped")
		base := backend.DeepCopy()
		backend.Spec.Serving.Labels = map[string]string{"change": label}
		if err := suite.admin.Patch(ctx, backend, client.MergeFrom(base)); err != nil {
			return err
		}
		if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 5*time.Second, true, func(ctx context.Context) (bool, error) {
			before, err = deployment(ctx)
			return err == nil && before.Spec.Template.Labels["change"] == label, err
		}); err != nil {
			return err
		}
		if before.Spec.Template.Annotations["stamp"] == "" {
			return fmt.Errorf("the pod template is not stamped: %v", before.Spec.Template.Annotations)
		}
		return nil
	})
	waitReady(t, suite, "stamped")
	settled(t, suite)
	// The Deployment controller has written its own annotation.
	if d, err := deployment(t.Context()); err != nil || d.Spec.Template.Annotations["stamp"] != before.Spec.Template.Annotations["stamp"] {
		t.Errorf("the pod template after a change is %v, which was made as %v (%v)", d.Spec.Template.Annotations, before.Spec.Template.Annotations, err)
	}
	from := len(auditEvents(t, suite))
	for i := range 5 {
		d, err := deployment(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: appsv1.DeploymentConditionType("Test" + strconv.Itoa(i)), Status: "True"})
		if err := suite.admin.Status().Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		backend := getBackend(t, suite, "stamped")
		base := backend.DeepCopy()
		backend.Spec.ResourceMetrics.MaxSampleAge.Duration += time.Second
		if err := suite.admin.Patch(t.Context(), backend, client.MergeFrom(base)); err != nil {
			t.Fatal(err)
		}
		waitReady(t, suite, "stamped")
	}
	settled(t, suite)
	after, err := deployment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if was, is := before.Spec.Template.Annotations["stamp"], after.Spec.Template.Annotations["stamp"]; is != was {
		t.Errorf("the pod template is stamped %s, before %s, although nothing of it changed", is, was)
	}
	for _, e := range auditEvents(t, suite)[from:] {
		if e.writes() && e.ResponseStatus.Code < 300 && e.ObjectRef.Resource != "metricsbackends" && e.ObjectRef.Resource != "leases" && e.ObjectRef.Resource != "events" {
			t.Errorf("the operator wrote %s %s/%s, which nobody had changed", e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name)
		}
	}
}
