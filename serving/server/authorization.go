// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// broadFirst asks whether a user may do something without its selectors, and only
// if not, with them. A selector narrows what a request reaches (KEP-4601), so who
// may have all may have some.
//
// Each question goes to kube-apiserver as a SubjectAccessReview, whose answer is
// kept for some seconds by all that was asked, selectors included, at no more than
// 200 a second (the generic API server's client). Autoscalers have a selector each:
// thousands of them that list, or watch again after a rollout, would wait for that.
// For the same reason those who ask the same at the same time, when no answer is
// kept yet, wait for one answer.
//
// A user who may have only some costs a question more: the broad no, once in the
// seconds for which it is kept like any other answer (--authorization-webhook-cache-unauthorized-ttl),
// for a namespace and not for each selector.
type broadFirst struct {
	authorizer.Authorizer
	asking singleflight.Group
}

func (b *broadFirst) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if selects(a) {
		// Anything but a yes: the whole question has the answer, or the error. That is
		// also for the case that whoever asked has left meanwhile.
		allowed, _, _ := b.asking.Do(question(a), func() (any, error) {
			decision, reason, err := b.Authorizer.Authorize(ctx, unselective{a})
			return allowance{reason: reason, given: err == nil && decision == authorizer.DecisionAllow}, nil
		})
		if allowed := allowed.(allowance); allowed.given {
			return authorizer.DecisionAllow, allowed.reason, nil
		}
	}
	return b.Authorizer.Authorize(ctx, a)
}

// ConditionsAwareAuthorize is what an authorizer has that knows no conditions.
func (b *broadFirst) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(b.Authorize(ctx, a))
}

// allowance is the answer to a broad question.
type allowance struct {
	reason string
	given  bool
}

// question tells broad questions apart, by all that a SubjectAccessReview asks.
func question(a authorizer.Attributes) string {
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

// unselective is a request for all objects.
type unselective struct{ authorizer.Attributes }

func (unselective) GetFieldSelector() (fields.Requirements, error) { return nil, nil }

func (unselective) GetLabelSelector() (labels.Requirements, error) { return nil, nil }
