// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Explainer is a Request that can explain its values.
type Explainer interface {
	// Explain explains the values that List would return. Errors are those of List, except that a
	// failure of the source is part of the explanation.
	Explain(ctx context.Context, options *metainternalversion.ListOptions) (*v1alpha1.MetricExplanation, error)
}

// wantsExplanation reports whether the query asks for an explanation. It is a parameter of the
// metric's own path, so that it is authorized like the values.
func wantsExplanation(query url.Values) (bool, error) {
	text := query.Get(v1alpha1.ParameterExplain)
	if text == "" {
		return false, nil
	}
	explain, err := strconv.ParseBool(text)
	if err != nil {
		return false, apierrors.NewBadRequest(v1alpha1.ParameterExplain + "=" + text + ": must be true or false")
	}
	return explain, nil
}

// explain writes an explanation, always as JSON, since it belongs to no API group.
func (e *endpoint) explain(w http.ResponseWriter, req *http.Request, r Explainer) error {
	query := req.URL.Query()
	var options metainternalversion.ListOptions
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(query, e.scope.MetaGroupVersion, &options); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := checkOptions(&options); err != nil {
		return err
	}
	explanation, err := r.Explain(req.Context(), &options)
	if err != nil {
		return apiError(err)
	}
	responsewriters.WriteRawJSON(http.StatusOK, explanation, w)
	return nil
}
