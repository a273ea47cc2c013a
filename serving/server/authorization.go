// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"k8s.io/metrics/pkg/apis/metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// authorizer returns one that asks kube-apiserver, as the stock options do, but in protobuf, for which these
// have no setting: each request for another object is a SubjectAccessReview, which takes most of the time of
// a small one.
func (o *Options) authorizer() (authorizer.Authorizer, error) {
	restConfig, err := restConfigFrom(o.Authorization.RemoteKubeConfigFile, "--authorization-kubeconfig")
	if err != nil {
		return nil, err
	}
	restConfig.QPS, restConfig.Burst, restConfig.Timeout = 200, 400, o.Authorization.ClientTimeout
	client, err := authorizationclient.NewForConfig(withProtobuf(restConfig))
	if err != nil {
		return nil, fmt.Errorf("make a client from --authorization-kubeconfig: %w", err)
	}
	delegated, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client,
		AllowCacheTTL:             o.Authorization.AllowCacheTTL,
		DenyCacheTTL:              o.Authorization.DenyCacheTTL,
		WebhookRetryBackoff:       o.Authorization.WebhookRetryBackoff,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("set up delegated authorization: %w", err)
	}
	paths, err := path.NewAuthorizer(o.Authorization.AlwaysAllowPaths)
	if err != nil {
		return nil, fmt.Errorf("read --authorization-always-allow-paths: %w", err)
	}
	return union.New(
		union.NamedAuthorizer{AuthorizerName: "metricsbackend.io/no-loops", Authorizer: authorizer.AuthorizerFunc(refuseMetricsAPIAccounts)},
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/always-allow-groups", Authorizer: authorizerfactory.NewPrivilegedGroups(o.Authorization.AlwaysAllowGroups...)},
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/always-allow-paths", Authorizer: paths},
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/webhook", Authorizer: &widestFirst{Authorizer: delegated}},
	)
}

// metricsAPIAccount matches the ServiceAccounts whose tokens MetricsBackends send to other implementations.
var metricsAPIAccount = regexp.MustCompile(`^system:serviceaccount:[^:]+:metrics-serving-.+` + v1alpha1.MetricsAPIAccountSuffix + `$`)

// refuseMetricsAPIAccounts denies every request that a MetricsBackend passes on, of discovery, too: that it comes to
// one shows that it could go round forever.
func refuseMetricsAPIAccounts(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if u := a.GetUser(); u != nil && metricsAPIAccount.MatchString(u.GetName()) {
		return authorizer.DecisionDeny, "it " + v1alpha1.LeadsBack, nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// widestFirst authorizes a wider request first, and the request itself only if that is not allowed: one with
// selectors without them, one for a custom or external metric for all of them in all namespaces, and one for the metrics of
// a pod, a node or the pods of a namespace for those of all. A selector restricts a request (KEP-4601), and a user who may
// read everything may read some of it.
//
// Each authorization is a SubjectAccessReview, which is cached for some seconds by all of its
// attributes, selectors included, and limited to 200 a second (the generic API server's
// client). Thousands of autoscalers, each with a metric or a selector of its own, would exceed that when
// they list, or watch again after a rollout. For the same reason concurrent equal
// authorizations share one request, and its error: thousands of narrower ones would fail, too.
//
// An authorizer of kube-apiserver's that denies one metric or namespace to a user who may read all of them is not asked
// about it here. It was when kube-apiserver passed the request on; one that goes to this server itself it does not see.
//
// A user who may read only some objects costs one more SubjectAccessReview for each verb and resource, and with selectors
// one for each namespace, cached like any other (--authorization-webhook-cache-unauthorized-ttl). While these cannot be
// made, it is answered an error, also if its own permission is still cached.
type widestFirst struct {
	authorizer.Authorizer
	running singleflight.Group
}

// sharedReviewTimeout bounds a review that may outlive its callers. 10,000 reviews take 50 s.
const sharedReviewTimeout = time.Minute

// Authorize implements authorizer.Authorizer.
func (w *widestFirst) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	var wider []authorizer.Attributes
	switch group := a.GetAPIGroup(); {
	case !a.IsResourceRequest():
	case group == custom_metrics.GroupName, group == external_metrics.GroupName:
		wider = append(wider, allMetrics{allObjects{unselective{a}}})
	case group == metrics.GroupName && (a.GetNamespace() != "" || a.GetName() != ""):
		wider = append(wider, allObjects{unselective{a}})
	}
	if selects(a) {
		wider = append(wider, unselective{a})
	}
	for _, of := range wider {
		shared, err, _ := w.running.Do(attributesKey(of), func() (any, error) {
			// The caller that started it may leave before others.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sharedReviewTimeout)
			defer cancel()
			decision, reason, err := w.Authorizer.Authorize(ctx, of)
			return widerResult{reason: reason, allowed: decision == authorizer.DecisionAllow}, err
		})
		if err != nil {
			return authorizer.DecisionNoOpinion, "", err
		}
		// Anything but an allow is decided by what is narrower.
		if result := shared.(widerResult); result.allowed {
			return authorizer.DecisionAllow, result.reason, nil
		}
	}
	return w.Authorizer.Authorize(ctx, a)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer, without conditions.
func (w *widestFirst) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(w.Authorize(ctx, a))
}

type widerResult struct {
	reason  string
	allowed bool
}

// attributesKey identifies an authorization without selectors by all attributes of its
// SubjectAccessReview.
func attributesKey(a authorizer.Attributes) string {
	u := a.GetUser()
	if u == nil {
		u = &user.DefaultInfo{}
	}
	extra := u.GetExtra()
	var b strings.Builder
	fmt.Fprintf(&b, "%q %q %q %t %q", u.GetName(), u.GetUID(), u.GetGroups(), a.IsResourceRequest(),
		[]string{a.GetVerb(), a.GetNamespace(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetName(), a.GetPath()})
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		fmt.Fprintf(&b, " %q %q", key, extra[key])
	}
	return b.String()
}

func selects(a authorizer.Attributes) bool {
	fieldRequirements, fieldErr := a.GetFieldSelector()
	labelRequirements, labelErr := a.GetLabelSelector()
	return len(fieldRequirements) > 0 || fieldErr != nil || len(labelRequirements) > 0 || labelErr != nil
}

// unselective are the attributes of a request without its selectors.
type unselective struct{ authorizer.Attributes }

func (unselective) GetFieldSelector() (fields.Requirements, error) { return nil, nil }

func (unselective) GetLabelSelector() (labels.Requirements, error) { return nil, nil }

// allObjects are the attributes of a request for all objects of its resource, in all namespaces.
type allObjects struct{ unselective }

func (allObjects) GetNamespace() string { return "" }

func (allObjects) GetName() string { return "" }

// allMetrics are those of one for all metrics of its API group.
type allMetrics struct{ allObjects }

func (allMetrics) GetResource() string { return "*" }

func (allMetrics) GetSubresource() string { return "" }
