// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// addNext adds the next command to type below something that fails, unless it is empty.
func addNext(node *output.Node, command string) {
	if command != "" {
		node.Add(output.NextCommand(command))
	}
}

// addFlags appends flags to the commands of nodes and of those below them.
func addFlags(nodes []*output.Node, flags string) {
	for _, node := range nodes {
		for i := range node.Cells {
			if node.Cells[i].Whole {
				node.Cells[i].Text += flags
			}
		}
		addFlags(node.Children, flags)
	}
}

// nextCommands returns the next command to type for each condition that fails, by type. Areas
// precede the summary, and a command is only returned once.
func nextCommands(b *Backend) map[string]string {
	commands := map[string]string{}
	conditions := inOrder(b.Status.Conditions)
	stalled := meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionStalled)
	areas := slices.IndexFunc(conditions, func(c metav1.Condition) bool {
		return rank(c.Type) > rank(v1alpha1.ConditionReconciling)
	})
	if areas > 0 {
		conditions = append(conditions[areas:], conditions[:areas]...)
	}
	for _, c := range conditions {
		if !fails(c) || stalled && c.Type == v1alpha1.ConditionReady {
			continue // Ready repeats Stalled
		}
		if command := nextOf(b, c.Type, c.Reason); command != "" && !slices.Contains(slices.Collect(maps.Values(commands)), command) {
			commands[c.Type] = command
		}
	}
	return commands
}

// fails reports whether somebody should look: not while the operator is working.
func fails(c metav1.Condition) bool {
	switch c.Type {
	case v1alpha1.ConditionStalled:
		return c.Status == metav1.ConditionTrue
	case v1alpha1.ConditionReconciling:
		return false
	}
	return c.Status == metav1.ConditionFalse
}

// nextOf returns the command that shows the cause of a reason, or leads to its remedy; "" if one
// only has to wait. None changes an existing object without an editor.
func nextOf(b *Backend, condition, reason string) string {
	in := func(format string) string { return fmt.Sprintf(format, b.Namespace) }
	switch reason {
	case v1alpha1.ReasonProgressing, v1alpha1.ReasonNotYetReported, v1alpha1.ReasonDeleting, v1alpha1.ReasonDependencyNotReady,
		v1alpha1.ReasonRetiring, v1alpha1.ReasonRotating, v1alpha1.ReasonRollingOut, v1alpha1.ReasonNotApplicable, v1alpha1.ReasonSucceeded:
		return "" // or see another condition
	case v1alpha1.ReasonNamespaceMissing:
		return in("kubectl create namespace %s")
	case v1alpha1.ReasonNamespaceTerminating:
		return in("kubectl describe namespace %s")
	case v1alpha1.ReasonNamespaceNotManaged, v1alpha1.ReasonForbidden, v1alpha1.ReasonAPICallFailed:
		// The log of each replica: only the leader's says why.
		return "kubectl logs -n " + b.operatorNamespace() + " -l " + connection.OperatorLabel + " --tail=50"
	case v1alpha1.ReasonSecretMissing, v1alpha1.ReasonCertificateInvalid, v1alpha1.ReasonCertificateExpired,
		v1alpha1.ReasonCertificateExpiring, v1alpha1.ReasonCertificateMismatch:
		if b.Existing != "" {
			return "kubectl edit metricsbackend " + b.Name // for spec.existing.caBundle
		}
		return in("kubectl get secrets -n %s")
	case v1alpha1.ReasonCertManagerMissing:
		return "kubectl get crds certificates.cert-manager.io"
	case v1alpha1.ReasonServiceMissing, v1alpha1.ReasonNoReadyEndpoint:
		return in("kubectl get services,endpointslices -n %s")
	case v1alpha1.ReasonConflict:
		return "kubectl get metricsbackends -o wide"
	case v1alpha1.ReasonNotOwned, v1alpha1.ReasonPodsUnreachable, v1alpha1.ReasonAdoptionReverted:
		return "kubectl metrics-backend preflight"
	case v1alpha1.ReasonContested:
		return "kubectl get apiservices -l " + v1alpha1.LabelBackend + " -o yaml --show-managed-fields"
	case v1alpha1.ReasonOtherInstallation:
		return connection.OperatorPods
	case v1alpha1.ReasonRolloutFailed, v1alpha1.ReasonVersionNotServed:
		if b.Existing != "" {
			return in("kubectl describe service -n %s ") + b.service()
		}
		return "kubectl describe pods " + b.servingPods()
	case v1alpha1.ReasonProbeFailed, v1alpha1.ReasonKubeletsFailing, v1alpha1.ReasonSourcesFailing:
		return b.servingLog()
	case v1alpha1.ReasonAggregatorUnavailable, v1alpha1.ReasonRequestFailed, v1alpha1.ReasonNotInDiscovery, v1alpha1.ReasonNoFreshSample:
		return "kubectl metrics-backend verify"
	case v1alpha1.ReasonKubeletCertificatesUntrusted:
		return "kubectl get certificatesigningrequests"
	case v1alpha1.ReasonNoNodes:
		return "kubectl get nodes --show-labels"
	case v1alpha1.ReasonInvalid, v1alpha1.ReasonRulesInvalid:
		return "kubectl edit metricsbackend " + b.Name
	case v1alpha1.ReasonRulesFailing:
		return "kubectl metrics-backend status " + b.Name + " -o yaml"
	case v1alpha1.ReasonConsumersActive, v1alpha1.ReasonRemovalForced, v1alpha1.ReasonConsumersUnknown:
		return "kubectl get metricsbackend " + b.Name + " -o jsonpath='{.status.consumers}'"
	}
	if condition == v1alpha1.ConditionSourcesHealthy {
		return b.servingLog()
	}
	return "kubectl describe metricsbackend " + b.Name
}

// nextOfSource returns the command for a source that is not healthy.
func nextOfSource(b *Backend, reason string) string {
	switch reason {
	case "Credentials", "Unauthorized", "CertificateUntrusted":
		return "kubectl get secrets -n " + b.Namespace
	case "InvalidSpec", "ServiceMissing", "Loop":
		return "kubectl edit metricsbackend " + b.Name
	case v1alpha1.ReasonNotYetReported:
		return ""
	}
	return b.servingLog()
}

// operatorNamespace is that of the operator that manages the backend.
func (b *Backend) operatorNamespace() string {
	return cmp.Or(b.Status.Installation.Namespace, b.Namespace)
}

// service returns the name of the Service of spec.existing.
func (b *Backend) service() string {
	_, name, _ := strings.Cut(b.Existing, "/")
	return name
}

// servingLog returns the command for the log of the pods that serve.
func (b *Backend) servingLog() string {
	if b.Existing != "" {
		return "kubectl logs -n " + b.Namespace + " service/" + b.service() + " --tail=50"
	}
	return "kubectl logs " + b.servingPods() + " --tail=50"
}

// servingPods returns the flags that select the pods of the operator's own serving component.
func (b *Backend) servingPods() string {
	return "-n " + b.Namespace + " -l " + v1alpha1.LabelBackend + "=" + b.Name
}
