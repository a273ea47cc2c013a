// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// failureKinds bounds the kinds of failures that a message explains.
	failureKinds = 2
	nodesShown   = 5
	// exactNodes is the number up to which pinned nodes are counted exactly: the status is not to
	// be written for each node of a cluster that is scaled.
	exactNodes = 10
)

// Kubelets summarizes the pods' reports about kubelets. Each pod scrapes every
// kubelet, and requests reach any pod, so the report with the most failures counts, or of these
// the one with the most pods without metrics: a pod that has just started knows of none.
func (in *Input) Kubelets(reports []*v1alpha1.SourceReport) Result {
	worst := slices.MaxFunc(reports, func(a, b *v1alpha1.SourceReport) int {
		k, other := &a.Kubelets, &b.Kubelets
		return cmp.Or(failureCount(k)-failureCount(other), k.PodsWithoutMetrics-other.PodsWithoutMetrics, cmp.Compare(k.PodsWithoutPoint, other.PodsWithoutPoint))
	})
	result := in.evaluateKubelets(worst.Kubelets)
	failing := in.Streaks.Set(Key{failure: kubeletsFailing}, result.Status == metav1.ConditionFalse)
	known := in.condition(v1alpha1.ConditionSourcesHealthy)
	// Kubelets come first in the condition, so with this reason they were healthy.
	wereHealthy := known.Status == metav1.ConditionTrue || known.Reason == v1alpha1.ReasonSourcesFailing
	if failing.Count > 0 && failing.Elapsed < Grace && wereHealthy {
		result = Result{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, kubeletsAnswer}
	}
	if result.Status == metav1.ConditionTrue {
		result.Message += pinnedMessage(reports)
	}
	if result.Status == metav1.ConditionTrue && known.Status == result.Status && known.ObservedGeneration == in.Generation && len(in.Spec.Sources) == 0 {
		result.Message = in.debounceMessage(Key{failure: sourceMessageDiffers}, known.Message, result.Message)
	}
	return result
}

// pinnedMessage says how many nodes have a pinned certificate, if there are any, by the pod that
// knows of most: another has just started.
func pinnedMessage(reports []*v1alpha1.SourceReport) string {
	pinned, expiring := 0, 0
	for _, r := range reports {
		pinned, expiring = max(pinned, r.Kubelets.Pinned), max(expiring, r.Kubelets.Expiring)
	}
	count, soon := fmt.Sprint(pinned), ""
	switch {
	case pinned == 0:
		return ""
	case pinned > exactNodes:
		count = roughCount(pinned)
	}
	if expiring > 0 {
		soon = ", and is refused on some within 30 days, since it expires: renew it there (" + v1alpha1.RenewOwnCertificate + "), then restart the serving pods"
	}
	return "; nodes whose certificate no CA verifies, and that is pinned on first use: " + count + soon
}

const kubeletsAnswer = "all kubelets that were asked answer"

func failureCount(k *v1alpha1.KubeletReport) int {
	n := 0
	for _, f := range k.Failures {
		n += f.Count
	}
	return n
}

func (in *Input) evaluateKubelets(k v1alpha1.KubeletReport) Result {
	switch {
	case k.Nodes == 0:
		return Result{
			metav1.ConditionFalse, v1alpha1.ReasonNoNodes,
			"no node matches spec.resourceMetrics.scrape.nodeSelector: correct the selector, or take it out to scrape all nodes",
		}
	case len(k.Failures) == 0 && k.Healthy == 0:
		return Result{metav1.ConditionUnknown, v1alpha1.ReasonProgressing, "the kubelets are being asked for the first time"}
	}
	pods, none := in.podsMessage(k)
	switch {
	case len(k.Failures) == 0 && none:
		return Result{metav1.ConditionFalse, v1alpha1.ReasonKubeletsFailing, pods}
	case len(k.Failures) == 0:
		return Result{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, withPods(kubeletsAnswer, pods)}
	}
	failures := slices.Clone(k.Failures)
	slices.SortStableFunc(failures, func(a, b v1alpha1.KubeletFailure) int {
		// Failures that a setting can fix come first.
		return cmp.Or(cmp.Compare(reasonRank(a.Reason), reasonRank(b.Reason)), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	reason := v1alpha1.ReasonKubeletsFailing
	if reasonRank(failures[0].Reason) == 0 {
		reason = v1alpha1.ReasonKubeletCertificatesUntrusted
	}
	var parts []string
	for _, f := range failures[:min(len(failures), failureKinds)] {
		parts = append(parts, fmt.Sprintf("%d of %d nodes: %s (%s). %s", f.Count, k.Nodes, f.Reason, nodeNames(f), in.remedy(f.Reason)))
	}
	return Result{metav1.ConditionFalse, reason, withPods(strings.Join(parts, ". "), pods)}
}

// withPods returns a message followed by that about pods, if there is any.
func withPods(message, pods string) string {
	if pods == "" {
		return message
	}
	return message + "; " + pods
}

// podsMessage describes pods without metrics, if there are any, and reports whether no pod of the
// cluster has metrics. Those known from metadata may not run, or run on nodes that are not selected;
// but if all nodes are, some must have metrics, since serving runs in a pod, too.
func (in *Input) podsMessage(k v1alpha1.KubeletReport) (message string, none bool) {
	switch allNodes := in.Spec.ResourceMetrics.Scrape.NodeSelector.Size() == 0; {
	case k.PodPoints == 0 && k.PodsWithoutPoint > 0 && allNodes:
		return fmt.Sprintf("no pod has metrics (known from their metadata: %s). %s", roughCount(int(k.PodsWithoutPoint)), runtimeRemedy), true
	case k.PodsWithoutMetrics > 0:
		return fmt.Sprintf("pods that run without metrics: %s (first nodes: %s), most likely since the container runtime reports no CPU or no working set of them",
			roughCount(k.PodsWithoutMetrics), strings.Join(k.NodesWithoutPodMetrics, ", ")), false
	}
	return "", false
}

// roughCount rounds down to a power of two, since the status is not to be written for each pod.
func roughCount(n int) string { return fmt.Sprintf("at least %d", 1<<(bits.Len(uint(max(n, 1)))-1)) }

const runtimeRemedy = "Most likely the container runtime reports no containers, or no CPU or working set of them: " +
	"check that kubelet and runtime use the same cgroup driver, what `crictl stats` says on a node, and the runtime's log"

func nodeNames(f v1alpha1.KubeletFailure) string {
	var names []string
	for i, name := range f.Nodes[:min(len(f.Nodes), nodesShown)] {
		if i < len(f.SampleAges) {
			name += ": " + roughAge(f.SampleAges[i].Duration)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if more := f.Count - len(names); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), more)
	}
	return strings.Join(names, ", ")
}

// roughAges are the ages that messages distinguish: an age changes with each scrape, and the
// status is not to be written each time.
var roughAges = [...]time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

func roughAge(age time.Duration) string {
	i, found := slices.BinarySearch(roughAges[:], age)
	switch {
	case found:
		i++
	case i == 0:
		return "less than " + duration.HumanDuration(roughAges[0])
	}
	return "over " + duration.HumanDuration(roughAges[i-1])
}

func reasonRank(reason v1alpha1.ScrapeReason) int {
	switch reason {
	case v1alpha1.ScrapeCertificateUntrusted, v1alpha1.ScrapeCertificateChanged:
		return 0
	}
	return 1
}

// remedy returns what to do about one kind of failure.
func (in *Input) remedy(reason v1alpha1.ScrapeReason) string {
	const unreached = "Serving pods must reach kubelets at their address and port: check firewalls, NetworkPolicies, IP families and spec.resourceMetrics.scrape"
	const noKubelet = "What answers there is no kubelet with /metrics/resource: exclude virtual nodes with spec.resourceMetrics.scrape.nodeSelector"
	return cmp.Or(map[v1alpha1.ScrapeReason]string{
		v1alpha1.ScrapeCertificateUntrusted: "Kubelets show certificates that the cluster's CA did not sign for their address, so they get no token" + in.whyNotPinned() +
			". Either (1) have them signed: serverTLSBootstrap: true in the kubelets' configuration, then approve their CSRs; or (2) pin each node's first certificate: " +
			in.patchTLS(v1alpha1.KubeletTLSPinOnFirstUse) + "; or (3) verify nothing: " + in.patchTLS(v1alpha1.KubeletTLSInsecureSkipTLSVerify),
		v1alpha1.ScrapeCertificateChanged: "Kubelets show other certificates than those pinned on first use. If they were renewed, restart the serving pods to pin again: " +
			fmt.Sprintf("kubectl rollout restart deployment -n %s %s; otherwise someone answers in their place", in.Serving.Namespace, in.Serving.Name()),
		v1alpha1.ScrapeNoAddress:        "These nodes have no address of the types in spec.resourceMetrics.scrape.addressTypes",
		v1alpha1.ScrapeConnectionFailed: unreached,
		v1alpha1.ScrapeTimeout:          unreached,
		v1alpha1.ScrapeNoToken: "Serving pods cannot request a token of " + in.scrapeAccount() + ", and send kubelets no other: see their log. Role " +
			in.Serving.Namespace + "/" + in.Serving.Name() + " must let them create serviceaccounts/token of it; the operator creates both",
		v1alpha1.ScrapeUnauthorized: "These kubelets do not accept ServiceAccount tokens: set authentication.webhook.enabled: true in their configuration",
		v1alpha1.ScrapeForbidden: "These kubelets refuse " + in.scrapeAccount() + ": it needs nodes/metrics (ClusterRole " + in.Serving.ScrapeName() +
			"), and they authorization.mode: Webhook",
		v1alpha1.ScrapeBadStatus:          noKubelet,
		v1alpha1.ScrapeMalformedBody:      noKubelet,
		v1alpha1.ScrapeStaleSamples:       "Samples of these nodes are too old to be served, by the age shown: synchronize their clocks, or restart their kubelets if they renew no samples",
		v1alpha1.ScrapePodsWithoutMetrics: "By the kubelet's response, at least half of the pods that run have had no metrics for several minutes. " + runtimeRemedy,
		v1alpha1.ScrapeBodyTooLarge:       "Raise spec.resourceMetrics.scrape.maxResponseSize",
	}[reason], "See the serving pods' log")
}

// whyNotPinned says why mode VerifyOrPin does not pin the certificates that no CA verifies.
func (in *Input) whyNotPinned() string {
	switch {
	case in.Spec.ResourceMetrics.KubeletTLS.Mode != v1alpha1.KubeletTLSVerifyOrPin:
		return ""
	case in.Stored.KubeletsVerified:
		return ", and since other kubelets' certificates are, or were, signed, these are not pinned"
	}
	return ", and they are not pinned, since they are not the kubelets' own, or are for another name, or have expired (" + v1alpha1.RenewOwnCertificate + ")"
}

func (in *Input) patchTLS(mode v1alpha1.KubeletTLSMode) string {
	return fmt.Sprintf(`kubectl patch metricsbackend %s --type=merge -p '{"spec":{"resourceMetrics":{"kubeletTLS":{"mode":"%s"}}}}'`,
		in.Backend, mode)
}

// scrapeAccount describes the account whose tokens are for kubelets.
func (in *Input) scrapeAccount() string {
	return "ServiceAccount " + in.Serving.Namespace + "/" + in.Serving.ScrapeName()
}
