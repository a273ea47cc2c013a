// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package plugincluster

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/authority"
)

// response is the response to one request.
type response struct {
	code  int
	kind  string
	body  []byte
	hangs bool
	// watched is the kind of objects in a watch of the path.
	watched metav1.TypeMeta
}

const backendsPath = "/apis/metricsbackend.io/v1alpha1/metricsbackends"

func (w *World) respond(r *http.Request) response {
	path := r.URL.Path
	if slices.Contains(w.Hanging, path) {
		return response{hangs: true}
	}
	if code := w.Codes[path]; code != 0 {
		return errorResponse(code, path)
	}
	if w.Write != nil && (r.Method == http.MethodDelete || r.Method == http.MethodPatch && r.Header.Get("Content-Type") != string(types.ApplyYAMLPatchType)) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return errorResponse(http.StatusBadRequest, path)
		}
		if code := w.Write(strings.TrimSpace(r.Method + " " + path + " " + string(body))); code != http.StatusOK {
			return errorResponse(code, path)
		}
		return jsonResponse(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	}
	if r.Method == http.MethodPatch && w.Apply != nil {
		return w.apply(r)
	}
	name, isBackend := strings.CutPrefix(path, backendsPath+"/")
	version, kind, _ := strings.Cut(strings.TrimPrefix(path, "/apis/metrics.k8s.io/"), "/")
	switch {
	case strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList"):
		return w.metadata(strings.TrimPrefix(path, "/api/v1/"))
	case w.NoKind && strings.HasPrefix(path, backendsPath):
		return errorResponse(http.StatusNotFound, path)
	case path == backendsPath:
		return listResponse("MetricsBackend", v1alpha1.GroupVersion.String(), v1alpha1.MetricsBackendList{Items: w.Backends})
	case isBackend:
		for i := range w.Backends {
			if w.Backends[i].Name == name {
				return jsonResponse(w.Backends[i])
			}
		}
	case path == "/apis/apiregistration.k8s.io/v1/apiservices":
		return listResponse("APIService", "apiregistration.k8s.io/v1", apiregistrationv1.APIServiceList{Items: w.APIServices})
	case path == "/apis/autoscaling/v2/horizontalpodautoscalers":
		return listResponse("HorizontalPodAutoscaler", "autoscaling/v2", autoscalingv2.HorizontalPodAutoscalerList{Items: w.Autoscalers})
	case path == "/api/v1/nodes":
		var nodes corev1.NodeList
		selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
		if err != nil {
			return errorResponse(http.StatusBadRequest, path)
		}
		for _, name := range w.Nodes {
			node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if slices.Contains(w.VirtualNodes, name) {
				node.Labels = map[string]string{"type": "virtual"}
			}
			if selector.Matches(labels.Set(node.Labels)) {
				nodes.Items = append(nodes.Items, node)
			}
		}
		return listResponse("Node", "v1", nodes)
	case path == "/api/v1/pods" && r.URL.Query().Get("fieldSelector") == "status.phase=Running":
		return listResponse("Pod", "v1", corev1.PodList{Items: w.Pods})
	case path == "/apis":
		return w.aggregated()
	case path == "/apis/metrics.k8s.io" && len(w.Group) > 0:
		return w.groupDocument()
	case path == "/metrics":
		return response{code: http.StatusOK, kind: "text/plain; version=0.0.4", body: []byte(w.Metrics)}
	case w.Others[strings.TrimPrefix(path, "/apis/")] != nil:
		groupVersion := strings.TrimPrefix(path, "/apis/")
		return resources(groupVersion, w.Others[groupVersion])
	case w.Served[version] != nil:
		return w.Served[version].respond(version, kind)
	}
	return errorResponse(http.StatusNotFound, path)
}

// metadata answers a request for the names of nodes, of pods, or of the namespaces of pods.
func (w *World) metadata(path string) response {
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}}
	add := func(name string) {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	switch path {
	case "nodes":
		for _, name := range w.Nodes {
			add(name)
		}
	case "namespaces":
		found := sets.New[string]()
		for i := range w.Pods {
			found.Insert(w.Pods[i].Namespace)
		}
		for _, name := range sets.List(found) {
			add(name)
		}
	default:
		for i := range w.Pods {
			if path == "namespaces/"+w.Pods[i].Namespace+"/pods" {
				add(w.Pods[i].Name)
			}
		}
	}
	return jsonResponse(list)
}

// apply returns the applied object, or the conflict.
func (w *World) apply(r *http.Request) response {
	object, query := &unstructured.Unstructured{}, r.URL.Query()
	if err := yaml.NewYAMLOrJSONDecoder(r.Body, 1<<20).Decode(object); err != nil || query.Get("fieldManager") == "" || query.Get("force") == "true" {
		return errorResponse(http.StatusBadRequest, r.URL.Path)
	}
	if managers := w.Apply(object); managers != nil {
		conflict := apierrors.NewApplyConflict(nil, fmt.Sprintf("Apply failed with 1 conflict: conflict with %q", managers)).Status()
		conflict.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		a := jsonResponse(conflict)
		a.code = http.StatusConflict
		return a
	}
	return jsonResponse(object)
}

// aggregated returns the discovery document of all groups.
func (w *World) aggregated() response {
	groups := []apidiscoveryv2.APIGroupDiscovery{{ObjectMeta: metav1.ObjectMeta{Name: "apps"}}}
	add := func(group, version string, freshness apidiscoveryv2.DiscoveryFreshness) {
		if groups[len(groups)-1].Name != group {
			groups = append(groups, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: group}})
		}
		last := &groups[len(groups)-1]
		last.Versions = append(last.Versions, apidiscoveryv2.APIVersionDiscovery{Version: version, Freshness: freshness})
	}
	for _, v := range w.Current {
		add("metrics.k8s.io", v, apidiscoveryv2.DiscoveryFreshnessCurrent)
	}
	for _, v := range w.Stale {
		add("metrics.k8s.io", v, apidiscoveryv2.DiscoveryFreshnessStale)
	}
	for _, other := range slices.Sorted(maps.Keys(w.Others)) {
		if group, version, _ := strings.Cut(other, "/"); !slices.Contains(w.Unlisted, other) {
			add(group, version, apidiscoveryv2.DiscoveryFreshnessCurrent)
		}
	}
	return jsonResponse(apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}, Items: groups,
	})
}

// resources returns the discovery document of a version.
func resources(groupVersion string, names []string) response {
	list := metav1.APIResourceList{GroupVersion: groupVersion}
	for _, name := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return jsonResponse(list)
}

func (w *World) groupDocument() response {
	group := metav1.APIGroup{Name: "metrics.k8s.io"}
	for _, v := range w.Group {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{Version: v, GroupVersion: "metrics.k8s.io/" + v})
	}
	group.PreferredVersion = group.Versions[0]
	return jsonResponse(group)
}

func (d *Data) respond(version, kind string) response {
	switch kind {
	case "":
		return resources("metrics.k8s.io/"+version, d.Resources)
	case "nodes":
		// The two versions are the same on the wire.
		nodes := metricsv1beta1.NodeMetricsList{TypeMeta: metav1.TypeMeta{Kind: "NodeMetricsList", APIVersion: "metrics.k8s.io/" + version}}
		for _, name := range slices.Sorted(maps.Keys(d.Nodes)) {
			nodes.Items = append(nodes.Items, metricsv1beta1.NodeMetrics{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Timestamp: metav1.NewTime(d.Nodes[name]),
				Usage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(d.CPU)},
			})
		}
		return jsonResponse(nodes)
	case "pods":
		pods := metricsv1beta1.PodMetricsList{TypeMeta: metav1.TypeMeta{Kind: "PodMetricsList", APIVersion: "metrics.k8s.io/" + version}}
		for _, key := range slices.Sorted(maps.Keys(d.Pods)) {
			namespace, name, _ := strings.Cut(key, "/")
			pods.Items = append(pods.Items, metricsv1beta1.PodMetrics{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Timestamp: metav1.NewTime(d.Pods[key]),
				Containers: []metricsv1beta1.ContainerMetrics{{Name: "main", Usage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}}},
			})
		}
		return jsonResponse(pods)
	}
	return errorResponse(http.StatusNotFound, kind)
}

func jsonResponse(object any) response {
	body, err := json.Marshal(object)
	if err != nil {
		return errorResponse(http.StatusInternalServerError, err.Error())
	}
	return response{code: http.StatusOK, kind: "application/json", body: body}
}

func listResponse(kind, version string, object any) response {
	a := jsonResponse(object)
	a.watched = metav1.TypeMeta{Kind: kind, APIVersion: version}
	return a
}

// errorResponse returns a Status as kube-apiserver does.
func errorResponse(code int, path string) response {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), //nolint:gosec // an HTTP status
	}
	switch code {
	case http.StatusForbidden:
		status.Reason = metav1.StatusReasonForbidden
		status.Message = `forbidden: User "bob" cannot get path "` + path + `"`
	case http.StatusNotFound:
		status.Reason = metav1.StatusReasonNotFound
		status.Message = "the server could not find the requested resource"
	case http.StatusServiceUnavailable:
		status.Reason = metav1.StatusReasonServiceUnavailable
		status.Message = "the server is currently unable to handle the request"
	default:
		status.Reason, status.Message = metav1.StatusReasonInternalError, "an internal error"
	}
	a := jsonResponse(status)
	a.code = code
	return a
}

// Authority returns the certificate in PEM of an authority that expires at that time.
func Authority(t *testing.T, notAfter time.Time) []byte {
	t.Helper()
	made, err := authority.New("authority", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = notAfter.Add(-10*365*24*time.Hour), notAfter
	})
	if err != nil {
		t.Fatal(err)
	}
	return made.PEM
}
