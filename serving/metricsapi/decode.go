// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubejson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	custominstall "k8s.io/metrics/pkg/apis/custom_metrics/install"
	"k8s.io/metrics/pkg/apis/external_metrics"
	externalinstall "k8s.io/metrics/pkg/apis/external_metrics/install"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// ObjectLabel is the label of a sample of the custom metrics API with the name of the described object.
const ObjectLabel = "object"

const (
	// bytesPerByte is about how much memory an answer takes for each byte of its JSON.
	bytesPerByte = 8
	// minItem is less than the length of a value, and of a resource of discovery, in JSON. It limits how many an answer
	// has: shorter ones take much more memory than their text.
	minItem = 64
)

var (
	scheme = newScheme()
	codecs = serializer.NewCodecFactory(scheme)
	// onlyJSON decodes what is asked for: aliases in YAML may make a short text long.
	onlyJSON = kubejson.NewSerializerWithOptions(kubejson.DefaultMetaFactory, scheme, scheme, kubejson.SerializerOptions{})
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	custominstall.Install(s)
	externalinstall.Install(s)
	utilruntime.Must(metav1.AddMetaToScheme(s))
	return s
}

// decodeDiscovery decodes the resources of a version.
func decodeDiscovery(body []byte, into *metav1.APIResourceList) error {
	var counted struct{ Resources elementCount }
	if err := json.Unmarshal(body, &counted); err != nil {
		return err
	}
	if err := counted.Resources.check(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return err
	}
	if into.Kind != "APIResourceList" {
		return fmt.Errorf("an APIResourceList is expected, not the kind %q", into.Kind)
	}
	return nil
}

// decode returns the values of a list as samples, which have the items of the list. They must be of the metric, and
// of the object, that the path of the request names.
func decode(body []byte, group, path string, at time.Time) ([]query.Sample, error) {
	var counted struct{ Items elementCount }
	if err := json.Unmarshal(body, &counted); err != nil {
		return nil, err
	}
	if err := counted.Items.check(body); err != nil {
		return nil, err
	}
	internal := schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}
	object, err := runtime.Decode(codecs.DecoderToVersion(onlyJSON, internal), body)
	if err != nil {
		return nil, err
	}
	metric, name, err := named(path)
	if err != nil {
		return nil, err
	}
	var samples []query.Sample
	add := func(item runtime.Object, value resource.Quantity, itemMetric string, of map[string]string, t metav1.Time) error {
		if !strings.EqualFold(query.UnescapeName(itemMetric), query.UnescapeName(metric)) {
			return fmt.Errorf("a value is of the metric %q, not of %q", itemMetric, metric)
		}
		if t.IsZero() {
			t.Time = at
		}
		samples = append(samples, query.Sample{Labels: of, Value: value.AsApproximateFloat64(), Time: t.Time, Passed: &query.Passed{Object: item, Quantity: value}})
		return nil
	}
	switch list := object.(type) {
	case *external_metrics.ExternalMetricValueList:
		for i := range list.Items {
			v := new(list.Items[i]) // which a watch may keep alone
			if err := add(v, v.Value, v.MetricName, v.MetricLabels, v.Timestamp); err != nil {
				return nil, err
			}
		}
	case *custom_metrics.MetricValueList:
		for i := range list.Items {
			v := new(list.Items[i])
			if name != custom_metrics.AllObjects && v.DescribedObject.Name != name {
				return nil, fmt.Errorf("a value is of the object %q, not of %q", v.DescribedObject.Name, name)
			}
			if err := add(v, v.Value, v.Metric.Name, map[string]string{ObjectLabel: v.DescribedObject.Name}, v.Timestamp); err != nil {
				return nil, err
			}
		}
	default:
		return nil, fmt.Errorf("a list of values is expected, not %T", object)
	}
	return samples, nil
}

// named returns the metric at the end of a path, and the object before it: of …/namespaces/NAME/metrics/METRIC the
// namespace. A path of the external metrics API names no object.
func named(path string) (metric, object string, err error) {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(path, "/")
	if len(parts) < 4 { // "", namespaces, NAMESPACE, METRIC
		return "", "", fmt.Errorf("the path %q names no metric", path)
	}
	object = parts[len(parts)-2]
	if len(parts) == 5 && parts[1] == "namespaces" && object == "metrics" {
		object = parts[2]
	}
	if metric, err = url.PathUnescape(parts[len(parts)-1]); err != nil {
		return "", "", err
	}
	object, err = url.PathUnescape(object)
	return metric, object, err
}

// elementCount is the number of elements of a list in JSON, found without memory for them.
type elementCount int

// UnmarshalJSON implements json.Unmarshaler. It adds, as a field may be there twice.
func (c *elementCount) UnmarshalJSON(list []byte) error {
	var elements []struct{}
	err := json.Unmarshal(list, &elements)
	*c += elementCount(len(elements))
	return err
}

// check returns an error if there are more elements than a body of this length can have.
func (c elementCount) check(body []byte) error {
	if limit := len(body) / minItem; int(c) > limit {
		return fmt.Errorf("it has more than %d elements, which is too many for its length", limit)
	}
	return nil
}
