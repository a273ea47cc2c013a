// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/metrics/pkg/apis/metrics"
	metricsinstall "k8s.io/metrics/pkg/apis/metrics/install"
)

// API is an API under test: what the checks must know of it beforehand.
type API struct {
	Group     string
	Resources []Resource
	// Codecs know the types of every version. They decode protobuf.
	Codecs serializer.CodecFactory
}

// Resource is one kind of metric of an API.
type Resource struct {
	// Name in discovery, and Kind of its objects.
	Name, Kind string
	Namespaced bool
	// Path of lists, in a namespace or, where that is empty, in all.
	Path func(version, namespace string) string
	// WatchPath of watches; nil where they are lists with `watch=true`.
	WatchPath func(version, namespace string) string
	// ObjectPath is where a list of one object is answered, empty where objects cannot be
	// asked for one by one; nil where an object is at the path of lists and its name.
	ObjectPath func(version string, o Object) string
	// Metadata says that objects have ObjectMeta: without it there is no Table, no
	// `sendInitialEvents`, and no informer.
	Metadata bool
	// Identify reads an object in JSON.
	Identify func(object []byte) (Object, error)
}

// Object is what the checks see of a metric.
type Object struct {
	Namespace, Name string
	ResourceVersion string
	Labels          map[string]string
	Annotations     map[string]string
	APIVersion      string
	Kind            string
	// Timestamp of the data point.
	Timestamp time.Time
	// Window of the data point's rates, as it was written. Replicas that measured from
	// different earlier samples have different ones, and so different rates, of the
	// same data point.
	Window string
	// Sample is all of the object but its type and metadata, in a form that is
	// the same for the same content. It is empty where there is no content.
	Sample string
}

// key tells objects of a resource apart.
func (o Object) key() string { return o.Namespace + "/" + o.Name }

// ResourceMetrics is metrics.k8s.io.
func ResourceMetrics() API {
	scheme := runtime.NewScheme()
	metricsinstall.Install(scheme)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	path := func(resource string) func(version, namespace string) string {
		return func(version, namespace string) string {
			if namespace != "" {
				namespace = "/namespaces/" + namespace
			}
			return "/apis/" + metrics.GroupName + "/" + version + namespace + "/" + resource
		}
	}
	return API{
		Group: metrics.GroupName,
		Resources: []Resource{
			{Name: "nodes", Kind: "NodeMetrics", Path: path("nodes"), Metadata: true, Identify: identify},
			{Name: "pods", Kind: "PodMetrics", Namespaced: true, Path: path("pods"), Metadata: true, Identify: identify},
		},
		Codecs: serializer.NewCodecFactory(scheme),
	}
}

// identify reads an object with ObjectMeta and a timestamp.
func identify(object []byte) (Object, error) {
	var o struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Timestamp         metav1.Time `json:"timestamp"`
		Window            string      `json:"window"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return Object{}, fmt.Errorf("decode %.200q: %w", object, err)
	}
	var content map[string]any
	if err := json.Unmarshal(object, &content); err != nil {
		return Object{}, fmt.Errorf("decode %.200q: %w", object, err)
	}
	maps.DeleteFunc(content, func(field string, value any) bool {
		// What has no value is left out by some encoders and written by others.
		return field == "apiVersion" || field == "kind" || field == "metadata" || isEmpty(value)
	})
	sample := ""
	if len(content) > 0 {
		b, err := json.Marshal(content) // sorts the keys
		if err != nil {
			return Object{}, err
		}
		sample = string(b)
	}
	return Object{
		Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion, Labels: o.Labels, Annotations: o.Annotations,
		APIVersion: o.APIVersion, Kind: o.Kind, Timestamp: o.Timestamp.Time,
		Window: o.Window, Sample: sample,
	}, nil
}

// isEmpty also takes for empty how metav1.Duration writes its zero.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == "" || value == "0s"
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}
