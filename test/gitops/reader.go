// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gitops reads a MetricsBackend in tests as GitOps tools do: by kstatus, as
// Flux and helm --wait, and by the Lua check, as Argo CD.
package gitops

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/argocd"
)

// healthCheck is Argo CD's check, below the repository's root.
const healthCheck = "config/argocd/resource_customizations/metricsbackend.io/MetricsBackend/health.lua"

// Reader reads objects.
type Reader struct{ healthCheck string }

// NewReader returns a Reader with the health check of the repository at root.
func NewReader(root string) (*Reader, error) {
	check, err := os.ReadFile(filepath.Join(root, healthCheck))
	return &Reader{string(check)}, err
}

// Reading is what the tools say of one version of an object.
type Reading struct {
	KStatus status.Result
	ArgoCD  argocd.Health
}

// String implements fmt.Stringer.
func (r Reading) String() string {
	return fmt.Sprintf("kstatus reads %s (%s), Argo CD %s (%s)", r.KStatus.Status, r.KStatus.Message, r.ArgoCD.Status, r.ArgoCD.Message)
}

// Read reads one stored version of an object, and returns what is wrong with it:
// what the tools say when the object says something else, or what they disagree in.
func (r *Reader) Read(backend *v1alpha1.MetricsBackend) (Reading, []string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(backend)
	if err != nil {
		return Reading{}, nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("MetricsBackend"))
	result, err := status.Compute(u)
	if err != nil {
		return Reading{}, nil, err
	}
	health, err := argocd.Run(r.healthCheck, u.Object)
	if err != nil {
		return Reading{}, nil, err
	}
	reading := Reading{*result, health}
	return reading, reading.problems(backend), nil
}

// agreeing are the words of Argo CD for each of kstatus. It also tells apart what
// is under way and what does not work.
var agreeing = map[status.Status][]string{
	status.CurrentStatus:     {"Healthy"},
	status.FailedStatus:      {"Degraded"},
	status.TerminatingStatus: {"Progressing"},
	status.InProgressStatus:  {"Progressing", "Degraded"},
}

func (r Reading) problems(backend *v1alpha1.MetricsBackend) []string {
	var problems []string
	conditions := backend.Status.Conditions
	seen := backend.Status.ObservedGeneration == backend.Generation
	deleted := backend.DeletionTimestamp != nil
	stalled := meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionStalled)
	if deleted != (r.KStatus.Status == status.TerminatingStatus) {
		problems = append(problems, "it is Terminating if and only if it is being deleted")
	}
	if (r.KStatus.Status == status.FailedStatus) != (stalled && seen && !deleted) {
		problems = append(problems, "it is Failed if and only if it is stalled")
	}
	if r.KStatus.Status == status.CurrentStatus && !meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady) {
		problems = append(problems, "it is Current, and not Ready")
	}
	if !slices.Contains(agreeing[r.KStatus.Status], r.ArgoCD.Status) {
		problems = append(problems, "the tools disagree")
	}
	return problems
}
