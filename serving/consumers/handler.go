// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package consumers

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// WithRecording records who asks for resources. Its place is behind
// authentication and authorization: a request that was refused uses no version.
// Discovery, which clients and kube-apiserver read of every version, is no
// request for a resource. A watch is recorded when it begins; it ends, and begins
// anew, many times a day.
func WithRecording(handler http.Handler, recorder *Recorder) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder.recordRequest(r)
		handler.ServeHTTP(w, r)
	})
}

func (r *Recorder) recordRequest(req *http.Request) {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || !info.IsResourceRequest {
		return
	}
	user, ok := request.UserFrom(req.Context())
	if !ok {
		return
	}
	// Not Header.Get: the key is canonical, and each request passes here.
	userAgent := ""
	if values := req.Header["User-Agent"]; len(values) > 0 {
		userAgent = values[0]
	}
	r.Record(schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, userAgent, user.GetName())
}
