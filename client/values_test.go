// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// values is an in-memory custom or external metrics API with one metric, evaluated every 15 s.
type values struct {
	requestLog

	group string
	// named has the resources in discovery, by version.
	named map[string][]metav1.APIResource
	// value returns the object with a timestamp of that many seconds.
	value func(version string, seconds int) map[string]any

	// prefixed serves watches of the prefix /watch/, plain those with `?watch=true`.
	prefixed, plain http.HandlerFunc
}

func (v *values) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	version, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/"+v.group+"/"), "/")
	what := "discover"
	v.mu.Lock()
	answerer := v.discover
	switch {
	case strings.HasPrefix(path, "watch/"):
		what, answerer = "watch/", v.prefixed
	case r.URL.Query().Get("watch") == "true":
		what, answerer = "?watch", v.plain
	case path != "":
		what, answerer = "list", v.list
	}
	v.mu.Unlock()
	v.record(what, version)
	answerer(rw, r)
}

func (v *values) discover(rw http.ResponseWriter, r *http.Request) {
	named, served := v.named[versionOf(r)]
	if !served {
		http.NotFound(rw, r)
		return
	}
	answer(rw, http.StatusOK, metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: v.group + "/" + versionOf(r), APIResources: named,
	})
}

func (v *values) list(rw http.ResponseWriter, r *http.Request) {
	answer(rw, http.StatusOK, v.listOf(versionOf(r), v.value(versionOf(r), v.seconds())))
}

func (v *values) listOf(version string, items ...map[string]any) map[string]any {
	kind := map[string]string{"custom.metrics.k8s.io": "MetricValueList", "external.metrics.k8s.io": "ExternalMetricValueList"}[v.group]
	return map[string]any{"kind": kind, "apiVersion": v.group + "/" + version, "metadata": map[string]any{"resourceVersion": "1"}, "items": items}
}

// seconds returns the time of the newest evaluation.
func (v *values) seconds() int { return int(time.Since(v.began)/(15*time.Second)) * 15 }

// stream serves a watch like the serving component, and closes it after lasting.
func (v *values) stream(lasting time.Duration) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		end := time.NewTimer(lasting)
		for {
			send(rw, "ADDED", v.value(versionOf(r), v.seconds()))
			next := time.NewTimer(15*time.Second - time.Since(v.began)%(15*time.Second))
			select {
			case <-r.Context().Done():
				return
			case <-end.C:
				// A value has no field for a resourceVersion, an empty list has.
				send(rw, "BOOKMARK", v.listOf(versionOf(r)))
				return
			case <-next.C:
			}
		}
	}
}

func (v *values) requests() string { return strings.Join(v.requestLog.requests(), "\n") }

func named(name string, verbs ...string) []metav1.APIResource {
	return []metav1.APIResource{{Name: name, Namespaced: true, Verbs: verbs}}
}
