// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package components

import (
	"context"
	"fmt"
	"net/http"
)

// limitedPriorityClasses is kube-apiserver's admission configuration: as on GKE, pods of the system's priority
// classes are refused in namespaces without a ResourceQuota for them.
const limitedPriorityClasses = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - scopeName: PriorityClass
        operator: In
        values: [system-node-critical, system-cluster-critical]
`

const (
	systemQuotaPath = "/api/v1/namespaces/kube-system/resourcequotas/critical-pods?fieldManager=test-cluster&force=true"
	systemQuota     = `apiVersion: v1
kind: ResourceQuota
metadata:
  name: critical-pods
  namespace: kube-system
spec:
  hard:
    pods: 1G
  scopeSelector:
    matchExpressions:
    - scopeName: PriorityClass
      operator: In
      values: [system-node-critical, system-cluster-critical]
`
)

// AllowPriorityClasses applies the ResourceQuota with which pods in kube-system may have the system's priority classes.
func AllowPriorityClasses(ctx context.Context, c Config) error {
	asAdmin, err := newClients(c)
	if err != nil {
		return err
	}
	if _, err := asAdmin.do(ctx, http.MethodPatch, c.Server()+systemQuotaPath, "application/apply-patch+yaml", systemQuota); err != nil {
		return fmt.Errorf("applying the ResourceQuota of kube-system: %w", err)
	}
	return nil
}
