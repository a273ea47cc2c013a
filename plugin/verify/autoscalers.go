// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

const hpaSubject = "HorizontalPodAutoscalers"

// hpaActive checks autoscalers that use metrics.k8s.io: KEP-5207 requires that they keep
// scaling during an upgrade and a rollback.
func hpaActive(ctx context.Context, snap *snapshot) []Result {
	var list autoscalingv2.HorizontalPodAutoscalerList
	var results []Result
	active := 0
	err := snap.cluster.Each(ctx, &list, func() {
		for i := range list.Items {
			if hpa := &list.Items[i]; usesResourceMetrics(hpa) {
				if result := checkHPA(hpa); result != nil {
					results = append(results, *result)
				} else {
					active++
				}
			}
		}
	})
	switch {
	case err != nil:
		return []Result{snap.requestFailed(hpaSubject, fmt.Errorf("list HorizontalPodAutoscalers: %w", err), "kube-apiserver does not list autoscaling/v2")}
	case active == 0 && len(results) == 0:
		return []Result{skip(hpaSubject, "none scales by CPU or memory")}
	case active > 0:
		results = append(results, pass(hpaSubject, "%d that scale by CPU or memory are active", active))
	}
	return results
}

// byResourceMetrics are the HPA controller's reasons for failures of metrics.k8s.io;
// autoscalers may use other metrics, too.
var byResourceMetrics = []string{"FailedGetResourceMetric", "FailedGetContainerResourceMetric"}

func usesResourceMetrics(hpa *autoscalingv2.HorizontalPodAutoscaler) bool {
	return slices.ContainsFunc(hpa.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ResourceMetricSourceType || m.Type == autoscalingv2.ContainerResourceMetricSourceType
	})
}

// checkHPA returns nil for an active autoscaler.
func checkHPA(hpa *autoscalingv2.HorizontalPodAutoscaler) *Result {
	subject := "hpa/" + hpa.Namespace + "/" + hpa.Name
	describe := fmt.Sprintf("kubectl describe hpa -n %s %s", hpa.Namespace, hpa.Name)
	i := slices.IndexFunc(hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScalingActive
	})
	if i < 0 {
		return new(warn(subject, "the HPA controller has not judged it yet", "look again in 15 seconds").withCommand(describe))
	}
	c := hpa.Status.Conditions[i]
	message := fmt.Sprintf("ScalingActive is %s, %s: %s", c.Status, c.Reason, c.Message)
	switch {
	case c.Status == corev1.ConditionTrue:
		return nil
	case c.Reason == "ScalingDisabled":
		// Its target was scaled to zero by hand.
		return new(skip(subject, "%s", message))
	case strings.Contains(c.Message, "missing request for"):
		return new(warn(subject, message, "not the metrics API's fault: set resource requests in its target's pods"))
	case !slices.Contains(byResourceMetrics, c.Reason):
		return new(warn(subject, message, "the cause is not "+group).withCommand(describe))
	}
	return new(fail(subject, message, "was it so before? Then leave it out with --skip=hpa-active="+subject).withCommand(describe))
}
