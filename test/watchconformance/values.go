// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	custominstall "k8s.io/metrics/pkg/apis/custom_metrics/install"
	"k8s.io/metrics/pkg/apis/external_metrics"
	externalinstall "k8s.io/metrics/pkg/apis/external_metrics/install"
)

// CustomMetric is one metric of custom.metrics.k8s.io: of all objects of a resource,
// in a namespace where they have one. Watches are at the prefix /watch/, which lasts.
func CustomMetric(resource schema.GroupResource, namespace, metric string) API {
	within := ""
	if namespace != "" {
		within = "/namespaces/" + namespace
	}
	of := func(version, prefix, name string) string {
		return "/apis/" + custom_metrics.GroupName + "/" + version + prefix + within + "/" + resource.String() + "/" + name + "/" + metric
	}
	return API{
		Group: custom_metrics.GroupName,
		Resources: []Resource{{
			Name: resource.String() + "/" + metric, Kind: "MetricValue",
			Path:       func(version, _ string) string { return of(version, "", custom_metrics.AllObjects) },
			WatchPath:  func(version, _ string) string { return of(version, "/watch", custom_metrics.AllObjects) },
			ObjectPath: func(version string, o Object) string { return of(version, "", o.Name) },
			Identify:   identifyValue,
		}},
		Codecs: codecsOf(custominstall.Install),
	}
}

// ExternalMetric is one metric of external.metrics.k8s.io, its name as paths have it.
func ExternalMetric(namespace, metric string) API {
	return API{
		Group: external_metrics.GroupName,
		Resources: []Resource{{
			Name: metric, Kind: "ExternalMetricValue",
			Path: func(version, _ string) string {
				return "/apis/" + external_metrics.GroupName + "/" + version + "/namespaces/" + namespace + "/" + metric
			},
			ObjectPath: func(string, Object) string { return "" },
			Identify:   identifyValue,
		}},
		Codecs: codecsOf(externalinstall.Install),
	}
}

func codecsOf(install func(*runtime.Scheme)) serializer.CodecFactory {
	scheme := runtime.NewScheme()
	install(scheme)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}

// identifyValue reads a value, which has no metadata: what it describes tells it from
// others, or the labels of an external metric.
func identifyValue(object []byte) (Object, error) {
	var o struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"` // of a bookmark, which is an empty list
		DescribedObject corev1.ObjectReference
		MetricName      string
		MetricLabels    map[string]string
		Timestamp       metav1.Time
		Value           string
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return Object{}, fmt.Errorf("decode %.200q: %w", object, err)
	}
	name := o.DescribedObject.Name
	if name == "" && !strings.HasSuffix(o.Kind, "List") {
		labels, err := json.Marshal(o.MetricLabels) // sorts the keys
		if err != nil {
			return Object{}, err
		}
		name = o.MetricName + string(labels)
	}
	return Object{
		Namespace: o.DescribedObject.Namespace, Name: name, ResourceVersion: o.ResourceVersion,
		APIVersion: o.APIVersion, Kind: o.Kind, Timestamp: o.Timestamp.Time, Sample: o.Value,
	}, nil
}
