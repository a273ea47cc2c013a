// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
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
type broadFirst struct{ authorizer.Authorizer }

func (b broadFirst) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if selects(a) {
		// What else but a yes: the whole question has the answer, or the error.
		if decision, reason, err := b.Authorizer.Authorize(ctx, unselective{a}); err == nil && decision == authorizer.DecisionAllow {
			return decision, reason, nil
		}
	}
	return b.Authorizer.Authorize(ctx, a)
}

// ConditionsAwareAuthorize is what an authorizer has that knows no conditions.
func (b broadFirst) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(b.Authorize(ctx, a))
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
