// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"context"
	"maps"
	"net/http"

	"github.com/emicklei/go-restful/v3"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1beta1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// The API server converts a list to a Table before it encodes it, so that the Table and its body are
// in memory as a whole, and each row costs the reflection of package json. So requests to list as a
// Table are changed to ask for the list, and the list writes itself as a Table.

type tableFormatKey struct{}

// tableFormatFrom returns what the list of a request is to be encoded as, or nil.
func tableFormatFrom(ctx context.Context) *tableFormat {
	format, _ := ctx.Value(tableFormatKey{}).(*tableFormat)
	return format
}

// listScope has the list handler's own rules of negotiation.
var listScope = &handlers.RequestScope{TableConvertor: &storage{}, MetaGroupVersion: metav1.SchemeGroupVersion}

// streamTables is a filter for the handlers of the group.
func streamTables(r *restful.Request, w *restful.Response, chain *restful.FilterChain) {
	if changed := asListRequest(r.Request); changed != nil {
		r.Request = changed
	}
	chain.ProcessFilter(r, w)
}

// asListRequest returns the request to list what is to be written as a Table, or nil if this is another
// request, or one that the API server refuses.
func asListRequest(r *http.Request) *http.Request {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || info.Verb != "list" {
		return nil
	}
	accepted, serializer, err := negotiation.NegotiateOutputMediaType(r, codecs, listScope)
	if err != nil || accepted.Convert == nil || accepted.Convert.Kind != "Table" || serializer.MediaType != runtime.ContentTypeJSON {
		return nil
	}
	var options metav1.TableOptions
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, &options); err != nil {
		return nil
	}
	if len(validation.ValidateTableOptions(&options)) > 0 {
		return nil
	}
	// Like as=Table, the parameter sv is accepted for a list and not for an error. So an error is
	// written in the same encoding as before.
	accept := runtime.ContentTypeJSON + ";sv=" + listScope.MetaGroupVersion.Version
	if accepted.Pretty {
		accept += ";pretty=1"
	}
	changed := r.WithContext(context.WithValue(r.Context(), tableFormatKey{}, &tableFormat{
		version: accepted.Convert.GroupVersion(), include: options.IncludeObject,
	}))
	changed.Header = maps.Clone(r.Header)
	changed.Header.Set("Accept", accept+","+r.Header.Get("Accept"))
	accepted, _, err = negotiation.NegotiateOutputMediaType(changed, codecs, listScope)
	if err != nil || accepted.UseServerVersion == "" {
		return nil
	}
	return changed
}
