// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxReview limits the size of a review.
const maxReview = 1 << 20

// decode reads the object of a request.
func decode(r *http.Request, into runtime.Object) error {
	name, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("content type: %v", err))
	}
	info, ok := mediaType(name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("content type %s is not served", name))
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxReview))
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("read the body: %v", err))
	}
	if _, _, err := info.Serializer.Decode(body, nil, into); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("decode the body: %v", err))
	}
	return nil
}

// reviewToken authenticates the only token.
func (s *Server) reviewToken(w http.ResponseWriter, r *http.Request) {
	review := &authenticationv1.TokenReview{}
	as, err := negotiate(r.Header.Get("Accept"))
	if err == nil {
		err = decode(r, review)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	review.Status = authenticationv1.TokenReviewStatus{}
	if review.Spec.Token == s.options.Token {
		review.Status.Authenticated = true
		review.Status.Audiences = review.Spec.Audiences
		review.Status.User = authenticationv1.UserInfo{Username: s.options.User, Groups: []string{"system:authenticated"}}
	}
	review.SetGroupVersionKind(authenticationv1.SchemeGroupVersion.WithKind("TokenReview"))
	as.write(w, http.StatusCreated, review)
}

// reviewAccess authorizes the groups.
func (s *Server) reviewAccess(w http.ResponseWriter, r *http.Request) {
	review := &authorizationv1.SubjectAccessReview{}
	as, err := negotiate(r.Header.Get("Accept"))
	if err == nil {
		err = decode(r, review)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	allowed := slices.ContainsFunc(review.Spec.Groups, func(group string) bool {
		return group == "system:masters" || slices.Contains(s.options.Groups, group)
	})
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: allowed}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"))
	as.write(w, http.StatusCreated, review)
}
