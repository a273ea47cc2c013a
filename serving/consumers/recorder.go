// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package consumers records which clients use which version of an API: the family of
// the user agent and the user name, by day. The operator reads the report before it
// removes a version.
//
// Names come from clients. So the report is bounded in number and in length, and
// contains printable characters only.
package consumers

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/metrics/pkg/apis/metrics"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// Recorder records the clients of a fixed set of versions. It is safe for concurrent
// use, and takes no lock for a client that it has recorded today.
type Recorder struct {
	clock    clock.PassiveClock
	versions []schema.GroupVersion
	logs     map[schema.GroupVersion]*usageLog
}

// NewRecorder returns an empty Recorder.
func NewRecorder(c clock.PassiveClock, versions []schema.GroupVersion) *Recorder {
	r := &Recorder{clock: c, versions: versions, logs: map[schema.GroupVersion]*usageLog{}}
	for _, version := range versions {
		r.logs[version] = newUsageLog()
	}
	return r
}

// WithRecording records the clients of resource requests. It belongs after
// authorization, since a refused request does not use a version. Discovery is not
// recorded: clients and kube-apiserver read that of every version. A watch is recorded
// when it starts, which happens many times a day. A request for a metric that nothing
// makes, answered with 404, is of a client of another implementation.
func WithRecording(handler http.Handler, recorder *Recorder) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		switch {
		case !ok || !info.IsResourceRequest:
			handler.ServeHTTP(w, r)
		case info.APIGroup == metrics.GroupName:
			recorder.recordRequest(r, info)
			handler.ServeHTTP(w, r)
		default:
			stream.ServeObserved(w, r, handler, func(code int) {
				if code != http.StatusNotFound {
					recorder.recordRequest(r, info)
				}
			})
		}
	})
}

func (r *Recorder) recordRequest(req *http.Request, info *request.RequestInfo) {
	user, ok := request.UserFrom(req.Context())
	if !ok {
		return
	}
	// The key is canonical, so Header.Get would be slower without need.
	userAgent := ""
	if values := req.Header["User-Agent"]; len(values) > 0 {
		userAgent = values[0]
	}
	r.Record(schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}, userAgent, user.GetName())
}

// Record records that a client used a version today. Versions not passed to
// NewRecorder and the project's own tools are ignored.
func (r *Recorder) Record(version schema.GroupVersion, userAgent, user string) {
	log := r.logs[version]
	if log == nil {
		return
	}
	c := newClient(userAgent, user)
	if v1alpha1.IsOwnUserAgent(c.userAgent) {
		return
	}
	log.record(c, dayOf(r.clock.Now()))
}

// Report returns the clients of today and yesterday, newest day first, then by version
// and name.
func (r *Recorder) Report() v1alpha1.ConsumerReport {
	today := dayOf(r.clock.Now())
	report := v1alpha1.ConsumerReport{Consumers: []v1alpha1.ConsumerStatus{}}
	for _, version := range r.versions {
		name := version.Version + "." + version.Group
		clients, others := r.logs[version].recent(name, today)
		report.Consumers = append(report.Consumers, clients...)
		if others > 0 {
			if report.Others == nil {
				report.Others = map[string]int{}
			}
			report.Others[name] = others
		}
	}
	v1alpha1.SortConsumers(report.Consumers)
	return report
}
