// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
		backend.Spec.ResourceMetrics.MaxAge.Duration += time.Second
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
