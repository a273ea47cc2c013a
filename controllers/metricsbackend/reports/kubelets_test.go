// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/sourcereport"
)

func TestEvaluateKubelets(t *testing.T) {
	t.Parallel()
	failure := func(reason v1alpha1.ScrapeReason, count int, nodes ...string) v1alpha1.KubeletFailure {
		return v1alpha1.KubeletFailure{Reason: reason, Count: count, Nodes: nodes, Message: "a message that changes"}
	}
	cases := map[string]struct {
		report v1alpha1.KubeletReport
		status metav1.ConditionStatus
		reason string
		parts  []string
		// message is the whole message, if it matters.
		message  string
		selector *metav1.LabelSelector
	}{
		"all answer":     {report: v1alpha1.KubeletReport{Nodes: 3, Healthy: 3}, status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded},
		"some not asked": {report: v1alpha1.KubeletReport{Nodes: 3, Healthy: 2, Pending: 1}, status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded},
		"none asked":     {report: v1alpha1.KubeletReport{Nodes: 3, Pending: 3}, status: metav1.ConditionUnknown, reason: v1alpha1.ReasonProgressing},
		"no nodes":       {status: metav1.ConditionFalse, reason: v1alpha1.ReasonNoNodes, parts: []string{"spec.resourceMetrics.scrape.nodeSelector"}},
		"self-signed kubelets": {
			report: v1alpha1.KubeletReport{Nodes: 2, Failures: []v1alpha1.KubeletFailure{failure(v1alpha1.ScrapeCertificateUntrusted, 2, "b", "a")}},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonKubeletCertificatesUntrusted,
			parts: []string{
				"2 of 2 nodes: CertificateUntrusted (a, b)", "serverTLSBootstrap: true", "approve their CSRs",
				`kubectl patch metricsbackend cluster --type=merge -p '{"spec":{"resourceMetrics":{"kubeletTLS":{"mode":"PinOnFirstUse"}}}}'`,
				`kubectl patch metricsbackend cluster --type=merge -p '{"spec":{"resourceMetrics":{"kubeletTLS":{"mode":"InsecureSkipTLSVerify"}}}}'`,
			},
		},
		"changed certificate": {
			report: v1alpha1.KubeletReport{Nodes: 2, Healthy: 1, Failures: []v1alpha1.KubeletFailure{failure(v1alpha1.ScrapeCertificateChanged, 1, "a")}},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonKubeletCertificatesUntrusted,
			parts: []string{"kubectl rollout restart deployment -n operator-ns metrics-serving-cluster"},
		},
		"what can be mended comes first, then the most nodes": {
			report: v1alpha1.KubeletReport{Nodes: 900, Healthy: 1, Failures: []v1alpha1.KubeletFailure{
				failure(v1alpha1.ScrapeTimeout, 800, "a", "b", "c", "d", "e"), failure(v1alpha1.ScrapeForbidden, 90, "f"),
				failure(v1alpha1.ScrapeCertificateUntrusted, 9, "g"),
			}},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonKubeletCertificatesUntrusted,
			parts: []string{"9 of 900 nodes: CertificateUntrusted (g and 8 more)", "'. 800 of 900 nodes: Timeout (a, b, c, d, e and 795 more)"},
		},
		"stale samples": {
			report: v1alpha1.KubeletReport{Nodes: 5, Healthy: 2, Failures: []v1alpha1.KubeletFailure{{
				Reason: v1alpha1.ScrapeStaleSamples, Count: 3, Nodes: []string{"a", "b", "c"},
				SampleAges: []metav1.Duration{{Duration: 95 * time.Second}, {Duration: 40 * time.Second}, {Duration: 30 * time.Hour}},
			}}},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonKubeletsFailing,
			parts: []string{"3 of 5 nodes: StaleSamples (a: over 60s, b: less than 60s, c: over 24h)", "synchronize their clocks"},
		},
		"more names than are shown": {
			report: v1alpha1.KubeletReport{Nodes: 7, Failures: []v1alpha1.KubeletFailure{failure(v1alpha1.ScrapeTimeout, 7, "a", "b", "c", "d", "e", "f", "g")}},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonKubeletsFailing, parts: []string{"(a, b, c, d, e and 2 more)"},
		},
		"a reason of a newer serving": {
			report: v1alpha1.KubeletReport{Nodes: 1, Failures: []v1alpha1.KubeletFailure{failure("FromTheFuture", 1, "a")}},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonKubeletsFailing, parts: []string{"FromTheFuture (a)", "log"},
		},
		"pods of a node without metrics": {
			report: v1alpha1.KubeletReport{Nodes: 3, Healthy: 2, PodsWithoutMetrics: 8, PodPoints: 30, Failures: []v1alpha1.KubeletFailure{failure(v1alpha1.ScrapePodsWithoutMetrics, 1, "a")}},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonKubeletsFailing,
			parts: []string{"1 of 3 nodes: PodsWithoutMetrics (a). By the kubelet's response", "cgroup driver", "crictl stats", "pods that run without metrics: at least 8"},
		},
		"a few pods without metrics": {
			report: v1alpha1.KubeletReport{Nodes: 3, Healthy: 3, PodsWithoutMetrics: 13, NodesWithoutPodMetrics: []string{"a", "b"}, PodPoints: 30, PodsWithoutPoint: 13},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded,
			parts: []string{"all kubelets that were asked answer; pods that run without metrics: at least 8 (first nodes: a, b), most likely since the container runtime reports no"},
		},
		"no pod has a point": {
			report: v1alpha1.KubeletReport{Nodes: 3, Healthy: 3, PodsWithoutPoint: 5},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonKubeletsFailing,
			parts: []string{"no pod has metrics (known from their metadata: at least 4)", "crictl stats"},
		},
		"no pod has a point, and a kubelet fails": {
			report: v1alpha1.KubeletReport{Nodes: 3, Healthy: 2, PodsWithoutPoint: 5, Failures: []v1alpha1.KubeletFailure{failure(v1alpha1.ScrapeTimeout, 1, "c")}},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonKubeletsFailing,
			parts: []string{"1 of 3 nodes: Timeout (c)", "no pod has metrics"},
		},
		"a pod without metrics, and a kubelet fails": {
			report: v1alpha1.KubeletReport{Nodes: 3, Healthy: 2, PodsWithoutMetrics: 1, NodesWithoutPodMetrics: []string{"a"}, PodPoints: 9, Failures: []v1alpha1.KubeletFailure{failure(v1alpha1.ScrapeTimeout, 1, "c")}},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonKubeletsFailing,
			parts: []string{"1 of 3 nodes: Timeout (c)", "pods that run without metrics: at least 1 (first nodes: a)"},
		},
		"no pod has a point, with a selector of all nodes": {
			report: v1alpha1.KubeletReport{Nodes: 3, Healthy: 3, PodsWithoutPoint: 5}, selector: &metav1.LabelSelector{},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonKubeletsFailing, parts: []string{"no pod has metrics"},
		},
		"no pod has a point, of the selected nodes": {
			report: v1alpha1.KubeletReport{Nodes: 3, Healthy: 3, PodsWithoutPoint: 5}, selector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubelet": "real"}},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded,
		},
		"most pods have no point, and perhaps have ended": {
			report: v1alpha1.KubeletReport{Nodes: 3, Healthy: 3, PodPoints: 30, PodsWithoutPoint: 300},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded, message: kubeletsAnswer,
		},
		"numbers that make no sense": {
			report: v1alpha1.KubeletReport{Nodes: 1, Healthy: -4, Failures: []v1alpha1.KubeletFailure{failure(v1alpha1.ScrapeTimeout, -2)}},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonKubeletsFailing,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := input(func(spec *v1alpha1.MetricsBackendSpec) { spec.ResourceMetrics.Scrape.NodeSelector = tc.selector })
			got := in.evaluateKubelets(tc.report)
			if tc.message != "" && got.Message != tc.message {
				t.Errorf("message %q, want %q", got.Message, tc.message)
			}
			if got.Status != tc.status || got.Reason != tc.reason {
				t.Errorf("%s, %s: want %s, %s", got.Status, got.Reason, tc.status, tc.reason)
			}
			for _, part := range tc.parts {
				if !strings.Contains(got.Message, part) {
					t.Errorf("message %q, want %q in it", got.Message, part)
				}
			}
			if strings.Contains(got.Message, "a message that changes") {
				t.Errorf("message %q holds a scrape's own error", got.Message)
			}
		})
	}
}

// Every reason that serving reports has its own remedy.
func TestRemedies(t *testing.T) {
	t.Parallel()
	in := input()
	unknown := in.remedy("FromTheFuture")
	for _, reason := range []v1alpha1.ScrapeReason{
		v1alpha1.ScrapeNoAddress, v1alpha1.ScrapeConnectionFailed, v1alpha1.ScrapeTimeout, v1alpha1.ScrapeCertificateUntrusted,
		v1alpha1.ScrapeCertificateChanged, v1alpha1.ScrapeNoToken, v1alpha1.ScrapeUnauthorized, v1alpha1.ScrapeForbidden, v1alpha1.ScrapeBadStatus,
		v1alpha1.ScrapeBodyTooLarge, v1alpha1.ScrapeMalformedBody, v1alpha1.ScrapeStaleSamples, v1alpha1.ScrapePodsWithoutMetrics,
	} {
		if got := in.remedy(reason); got == unknown || got == "" {
			t.Errorf("%s: no remedy", reason)
		}
	}
}

// Of replicas with as many failures the one that knows of most pods without metrics counts: another has just started.
func TestReplicaThatKnowsMost(t *testing.T) {
	t.Parallel()
	in := input()
	started := sourcereport.New()
	knows := sourcereport.New(func(r *v1alpha1.SourceReport) { r.Kubelets.PodPoints, r.Kubelets.PodsWithoutMetrics = 9, 4 })
	for _, reports := range [][]*v1alpha1.SourceReport{{started, knows}, {knows, started}} {
		if got := in.Kubelets(reports).Message; !strings.Contains(got, "at least 4") {
			t.Errorf("message %q", got)
		}
	}
}

// The message says how many certificates are pinned, by the pod that knows of most, also while the
// failure of a kubelet is not reported yet.
func TestPinnedKubelets(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pinned []int
		want   string
		// expiring is of the last pod.
		expiring int
	}{
		"none":       {[]int{0, 0}, "", 0},
		"one":        {[]int{1}, "; nodes whose certificate no CA verifies, and that is pinned on first use: 1", 0},
		"a new pod":  {[]int{10, 2}, "; nodes whose certificate no CA verifies, and that is pinned on first use: 10", 0},
		"too many":   {[]int{2, 900}, "; nodes whose certificate no CA verifies, and that is pinned on first use: at least 512", 0},
		"a few more": {[]int{903}, "; nodes whose certificate no CA verifies, and that is pinned on first use: at least 512", 0},
		"about to expire": {[]int{3, 2}, "; nodes whose certificate no CA verifies, and that is pinned on first use: 3, and is refused on some within 30 days, " +
			"since it expires: renew it there (" + v1alpha1.RenewOwnCertificate + "), then restart the serving pods", 1},
		"a bad number": {[]int{-1}, "", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var reports []*v1alpha1.SourceReport
			for _, n := range tc.pinned {
				reports = append(reports, sourcereport.New(func(r *v1alpha1.SourceReport) { r.Kubelets.Pinned = n }))
			}
			reports[len(reports)-1].Kubelets.Expiring = tc.expiring
			want := Result{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, kubeletsAnswer + tc.want}
			if diff := cmp.Diff(want, input().Kubelets(reports)); diff != "" {
				t.Errorf("Kubelets() (-want +got):\n%s", diff)
			}
		})
	}
}

// The remedy says why mode VerifyOrPin has not pinned the certificate.
func TestWhyNotPinned(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		mode     v1alpha1.KubeletTLSMode
		verified bool
		want     string
	}{
		"Verify":             {v1alpha1.KubeletTLSVerify, true, ""},
		"others are signed":  {v1alpha1.KubeletTLSVerifyOrPin, true, ", and since other kubelets' certificates are, or were, signed, these are not pinned"},
		"no kubelet's own":   {v1alpha1.KubeletTLSVerifyOrPin, false, ", and they are not pinned, since they are not the kubelets' own, or are for another name, or have expired (" + v1alpha1.RenewOwnCertificate + ")"},
		"any is pinned once": {v1alpha1.KubeletTLSPinOnFirstUse, false, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := input(func(spec *v1alpha1.MetricsBackendSpec) { spec.ResourceMetrics.KubeletTLS.Mode = tc.mode })
			in.Stored.KubeletsVerified = tc.verified
			if diff := cmp.Diff(tc.want, in.whyNotPinned()); diff != "" {
				t.Errorf("whyNotPinned() (-want +got):\n%s", diff)
			}
		})
	}
}
