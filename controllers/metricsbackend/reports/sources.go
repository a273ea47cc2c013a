// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	// sourcesShown bounds the sources that the condition explains.
	sourcesShown = 3
	// maxSourceMessage bounds a source's message, in bytes.
	maxSourceMessage = 1024
)

// Sources evaluates the pods' reports about spec.sources, and returns the status of each.
// Requests reach any pod, so the report of one pod is enough.
func (in *Input) Sources(reports []*v1alpha1.SourceReport) (result Result, all []v1alpha1.SourceStatus) {
	var failing, pending []string
	for i := range in.Spec.Sources {
		source := &in.Spec.Sources[i]
		seen := in.specSource(source.Name, reports)
		all = append(all, seen)
		if seen.Healthy || source.Optional {
			continue
		}
		if seen.Reason == v1alpha1.ReasonNotYetReported {
			pending = append(pending, source.Name)
		} else {
			failing = append(failing, fmt.Sprintf("source %q: %s: %s. %s.", seen.Name, seen.Reason,
				strings.TrimRight(seen.Message, ". "), in.sourceRemedy(source, seen.Reason)))
		}
	}
	switch {
	case len(failing) > 0:
		shown := failing[:min(len(failing), sourcesShown)]
		return Result{metav1.ConditionFalse, v1alpha1.ReasonSourcesFailing, strings.Join(shown, " ") + text.AndMore(len(failing)-len(shown), "source")}, all
	case len(pending) > 0:
		return Result{metav1.ConditionUnknown, v1alpha1.ReasonProgressing, "being asked for the first time: " + strings.Join(pending, ", ")}, all
	}
	return Result{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "all sources that are not optional answer"}, all
}

// specSource returns the state of one source. A failure of a healthy one is reported
// after Grace, or at once after a change of the spec.
func (in *Input) specSource(name string, reports []*v1alpha1.SourceReport) v1alpha1.SourceStatus {
	var was v1alpha1.SourceStatus
	if i := slices.IndexFunc(in.Stored.Sources, func(known v1alpha1.SourceStatus) bool { return known.Name == name }); i >= 0 {
		was = in.Stored.Sources[i]
	}
	now := reportedSource(name, reports)
	failing := Key{failure: sourceFailing, name: name}
	switch {
	case now.Healthy, now.Reason == v1alpha1.ReasonNotYetReported:
		in.Streaks.Reset(failing)
	case was.Healthy && in.condition(v1alpha1.ConditionSourcesHealthy).ObservedGeneration == in.Generation &&
		in.Streaks.Set(failing, true).Elapsed < Grace:
		return was
	}
	if now.Reason == was.Reason {
		now.Message = in.debounceMessage(Key{failure: sourceMessageDiffers, name: name}, was.Message, now.Message)
	}
	switch {
	case was.Name != "" && was.Healthy == now.Healthy && was.Since != nil:
		// Keep the first time, even if the pods that reported it are gone.
		now.Since = was.Since
	case now.Since == nil, now.Since.After(in.Now):
		now.Since = &metav1.Time{Time: in.Now.Truncate(time.Second)}
	}
	return now
}

// reportedSource merges the pods' reports about a source. Of different failures it
// returns the one that most pods report.
func reportedSource(name string, reports []*v1alpha1.SourceReport) v1alpha1.SourceStatus {
	seen := v1alpha1.SourceStatus{Name: name}
	failing := map[string][]v1alpha1.SourceHealth{}
	failed, healthy := 0, 0
	var failingSince, healthySince *metav1.Time
	for _, report := range reports {
		i := slices.IndexFunc(report.Sources, func(h v1alpha1.SourceHealth) bool { return h.Name == name })
		if i < 0 {
			continue
		}
		switch health := report.Sources[i]; {
		case health.Healthy:
			healthy++
			healthySince = earlier(healthySince, health.Since)
		case health.Reason != "":
			failed++
			failing[health.Reason] = append(failing[health.Reason], health)
			failingSince = earlier(failingSince, health.Since)
		}
	}
	switch {
	case failed > 0:
		reason := slices.MinFunc(slices.Collect(maps.Keys(failing)), func(a, b string) int {
			return cmp.Or(cmp.Compare(len(failing[b]), len(failing[a])), cmp.Compare(a, b))
		})
		seen.Reason, seen.Since = printable(reason), failingSince
		seen.Message = servingclient.WithPods(text.Printable(failing[reason][0].Message, maxSourceMessage), failed, len(reports))
	case healthy > 0:
		seen.Healthy, seen.Since = true, healthySince
	default:
		seen.Reason = v1alpha1.ReasonNotYetReported
	}
	return seen
}

// earlier returns the earlier of two times, in the resolution of the status.
func earlier(known *metav1.Time, other metav1.Time) *metav1.Time {
	if other.IsZero() || known != nil && !other.Before(known) {
		return known
	}
	return new(other.Rfc3339Copy())
}

// sourceRemedies say what to do about a failing Prometheus, by the reasons of serving. PATH stands for
// the source's field in the spec.
var sourceRemedies = map[string]string{
	"Credentials":          "Create or correct the Secret or ConfigMap that PATH names, in namespace NAMESPACE",
	"ConnectionFailed":     "Serving pods must reach it: check PATH.url, its Service, and NetworkPolicies",
	"Timeout":              "See how loaded it is, or raise PATH.timeout",
	"CertificateUntrusted": "Name the authority that signed its certificate in PATH.tls.caSecretKeyRef or .tls.caConfigMapKeyRef, and its name in tls.serverName if the URL has another",
	"Unauthorized":         "Correct PATH.authentication or .headers, or what its credentials may read",
	"PartialResponse":      "Bring back the part of the server that does not answer, or set PATH.partialResponsePolicy to Accept",
	"Rejected":             "It refuses the query vector(1): check PATH.url and .queryParameters, and the limits of the server",
	"RateLimited":          "The limit is that of the client or tenant that PATH.authentication and .headers name",
	"BadStatus":            "See the server's log, and check that PATH.url points to a server with the HTTP API of Prometheus, without /api/v1 at its end",
	"Malformed":            "Check that PATH.url points to a server with the HTTP API of Prometheus, without /api/v1 at its end",
	"InvalidSpec":          "Correct PATH",
	"Overloaded":           "Serving has too many queries for it waiting: raise intervals, or the server's speed",
	"TooLarge":             "Raise PATH.maxResponseSize, or narrow what rules ask for",
}

// metricsAPIRemedies are those of another implementation of a metrics API.
var metricsAPIRemedies = map[string]string{
	"Credentials":      sourceRemedies["Credentials"],
	"ConnectionFailed": "Serving pods must reach it: check PATH.service, its pods, and NetworkPolicies",
	"Timeout":          "See its log, and how loaded it is",
	"CertificateUntrusted": "Where its APIService has a caBundle, name that authority in PATH.tls.caSecretKeyRef or .tls.caConfigMapKeyRef, from namespace NAMESPACE " +
		"(KEDA: a copy of ca.crt of Secret kedaorg-certs); where it has insecureSkipTLSVerify, set PATH.tls.insecureSkipTLSVerify",
	"Unauthorized":   "Bind its own account to ClusterRole system:auth-delegator, without which it cannot check tokens, or see why it denies ServiceAccount ACCOUNT",
	"ServerError":    "See its log",
	"ServiceMissing": "Create the Service, with an address, or correct PATH.service",
	"Loop":           "Name the Service of the implementation itself in PATH.service: a MetricsBackend is no source of another",
	"RateLimited":    "Raise its limit, or give it more replicas",
	"BadStatus":      "See its log, and check that what PATH.service names serves PATH.group",
	"Malformed":      "See its log, and check that what PATH.service names serves PATH.group",
	"InvalidSpec":    sourceRemedies["InvalidSpec"],
	"Overloaded":     "Serving has too many requests for it waiting: see how loaded it is",
	"TooLarge":       "Narrow what autoscalers ask it for",
}

// sourceRemedy returns what to do about a failing source.
func (in *Input) sourceRemedy(source *v1alpha1.SourceSpec, reason string) string {
	kind, remedies := "prometheus", sourceRemedies
	if source.MetricsAPI != nil {
		kind, remedies = "metricsAPI", metricsAPIRemedies
	}
	path := fmt.Sprintf("spec.sources[name=%s].%s", source.Name, kind)
	remedy := cmp.Or(remedies[reason], "See the serving pods' log")
	return strings.NewReplacer("PATH", path, "NAMESPACE", in.Serving.Namespace, "ACCOUNT", in.Serving.MetricsAPIName()).Replace(remedy)
}
