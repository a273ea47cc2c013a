// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	enginesync "github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	synccommon "github.com/argoproj/argo-cd/gitops-engine/pkg/sync/common"
	"github.com/argoproj/argo-cd/v3/common"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// refresh is how often a running sync is looked at. Argo CD does so whenever an object changes.
const refresh = 300 * time.Millisecond

// operation is the state of a sync, as in status.operationState of an Application.
type operation struct {
	Phase   string `json:"phase"`
	Message string `json:"message"`
	// Resources has the result for each object, in the order of the sync.
	Resources []taskResult `json:"resources"`
}

// taskResult is what a sync did with an object.
type taskResult struct {
	Key     string `json:"key"`
	Phase   string `json:"phase"`
	Status  string `json:"status"`
	Message string `json:"message"`
}

// sync runs a sync to its end. As in Argo CD, each look compares again and continues from the recorded state.
func (a *application) sync(ctx context.Context) (operation, error) {
	foreground := metav1.DeletePropagationForeground
	phase, message, began := synccommon.OperationRunning, "", metav1.Now()
	var results []synccommon.ResourceSyncResult
	for {
		pairs, err := a.reconciled()
		if err != nil {
			return operation{}, err
		}
		step, cleanup, err := enginesync.NewSyncContext("main", pairs, a.config, a.config, a.kubectl, a.namespace,
			enginesync.WithLogr(klog.Background()),
			enginesync.WithHealthOverride(a.health()),
			enginesync.WithOperationSettings(false, a.prune, false, false),
			enginesync.WithInitialState(phase, message, results, began),
			enginesync.WithManifestValidation(true),
			enginesync.WithPrunePropagationPolicy(&foreground),
			enginesync.WithPruneConfirmed(false),
			enginesync.WithServerSideApply(a.serverSideApply),
			enginesync.WithServerSideApplyManager(common.ArgoCDSSAManager),
			enginesync.WithClientSideApplyMigration(true, synccommon.DefaultClientSideApplyMigrationManager))
		if err != nil {
			return operation{}, fmt.Errorf("start a sync: %w", err)
		}
		step.Sync()
		phase, message, results = step.GetState()
		cleanup()
		if phase.Completed() {
			break
		}
		select {
		case <-ctx.Done():
			return operation{}, fmt.Errorf("the sync is still %s: %s", phase, message)
		case <-time.After(refresh):
		}
	}
	done := operation{Phase: string(phase), Message: message}
	for _, r := range results {
		done.Resources = append(done.Resources, taskResult{
			Key: r.ResourceKey.String(), Phase: string(r.SyncPhase), Status: string(r.Status), Message: r.Message,
		})
	}
	return done, nil
}
