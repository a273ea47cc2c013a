// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/metrics/pkg/apis/custom_metrics/v1beta1"
	"k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
)

const webPods = "/namespaces/shop/pods/*/hits?labelSelector=app%3Dweb"

var codecs = serializer.NewCodecFactory(Scheme, serializer.WithSerializer(cbor.NewSerializerInfo))

// brief is what an encoding must not lose, of a list or a value of either version.
func brief(t *testing.T, object runtime.Object) []string {
	t.Helper()
	line := func(version, kind, name, metric, value string, window *int64, at metav1.Time) string {
		return fmt.Sprintf("%s %s/%s %s=%s over %ds at %s", version, kind, name, metric, value, *window, at.UTC().Format("15:04:05"))
	}
	var lines []string
	switch o := object.(type) {
	case *v1beta2.MetricValueList:
		for i := range o.Items {
			lines = append(lines, brief(t, &o.Items[i])...)
		}
	case *v1beta1.MetricValueList:
		for i := range o.Items {
			lines = append(lines, brief(t, &o.Items[i])...)
		}
	case *v1beta2.MetricValue:
		lines = []string{line("v1beta2", o.DescribedObject.Kind, o.DescribedObject.Name, o.Metric.Name, o.Value.String(), o.WindowSeconds, o.Timestamp)}
	case *v1beta1.MetricValue:
		lines = []string{line("v1beta1", o.DescribedObject.Kind, o.DescribedObject.Name, o.MetricName, o.Value.String(), o.WindowSeconds, o.Timestamp)}
	default:
		t.Fatalf("it is a %T", object)
	}
	return lines
}

func webPodsIn(version string) []string {
	return []string{
		version + " Pod/web-1 hits=500m over 120s at 12:00:00",
		version + " Pod/web-2 hits=1500 over 120s at 12:00:01",
	}
}

// TestEncodings reads lists and watches in every version and encoding.
func TestEncodings(t *testing.T) {
	mediaTypes := []string{
		"application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor",
	}
	bubble(t, newWorld(), func(t *testing.T, server *served) {
		for _, version := range []string{"v1beta1", "v1beta2"} {
			for _, accept := range mediaTypes {
				got := server.do(t, http.MethodGet, root(version)+webPods, accept)
				if got.code != http.StatusOK || got.header.Get("Content-Type") != accept {
					t.Fatalf("%s %s: %d %s: %q", version, accept, got.code, got.header.Get("Content-Type"), got.body)
				}
				object, err := runtime.Decode(codecs.UniversalDeserializer(), got.body)
				if err != nil {
					t.Fatalf("%s %s: decode: %v", version, accept, err)
				}
				if diff := cmp.Diff(webPodsIn(version), brief(t, object)); diff != "" {
					t.Errorf("%s %s: list (-want +got):\n%s", version, accept, diff)
				}
				if accept == "application/yaml" {
					// It has no form for streams, as elsewhere in Kubernetes.
					got := server.do(t, http.MethodGet, root(version)+"/watch"+webPods, accept)
					if got.code != http.StatusNotAcceptable {
						t.Errorf("%s %s: a watch: %d", version, accept, got.code)
					}
					continue
				}
				if diff := cmp.Diff(webPodsIn(version), readEvents(t, server, root(version)+"/watch"+webPods+"&timeoutSeconds=3", accept)); diff != "" {
					t.Errorf("%s %s: watch (-want +got):\n%s", version, accept, diff)
				}
			}
		}
	})
}

// readEvents reads a watch to its end.
func readEvents(t *testing.T, server *served, path, accept string) []string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	response, err := server.http().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	mediaType, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	if mediaType == runtime.ContentTypeCBORSequence {
		mediaType = runtime.ContentTypeCBOR
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok || info.StreamSerializer == nil {
		t.Fatalf("cannot read %q", mediaType)
	}
	frames := streaming.NewDecoder(info.StreamSerializer.NewFrameReader(response.Body), info.StreamSerializer.Serializer)
	var lines []string
	for {
		var event metav1.WatchEvent
		if _, _, err := frames.Decode(nil, &event); err == io.EOF {
			return lines
		} else if err != nil {
			t.Fatalf("decode an event: %v", err)
		}
		object, err := runtime.Decode(codecs.UniversalDeserializer(), event.Object.Raw)
		if err != nil {
			t.Fatalf("decode the object of an event: %v", err)
		}
		lines = append(lines, brief(t, object)...)
	}
}

// TestTable prints what `kubectl get --raw` with the Accept header of a Table has.
func TestTable(t *testing.T) {
	bubble(t, newWorld(), readTables)
}

func readTables(t *testing.T, server *served) {
	t.Helper()
	const accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
	read := func(body []byte) (headers []string, rows [][]any, metadata []string) {
		t.Helper()
		var table metav1.Table
		if err := json.Unmarshal(body, &table); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		if table.Kind != "Table" {
			t.Fatalf("not a Table: %s", body)
		}
		for _, c := range table.ColumnDefinitions {
			headers = append(headers, c.Name)
		}
		for _, r := range table.Rows {
			var partial metav1.PartialObjectMetadata
			if err := json.Unmarshal(r.Object.Raw, &partial); err != nil {
				t.Fatal(err)
			}
			rows, metadata = append(rows, r.Cells[:4]), append(metadata, partial.Namespace+"/"+partial.Name)
			if age, ok := r.Cells[4].(string); !ok || age == "" {
				t.Errorf("the age is %v", r.Cells[4])
			}
		}
		return headers, rows, metadata
	}
	for _, version := range []string{"v1beta1", "v1beta2"} {
		got := server.do(t, http.MethodGet, root(version)+webPods, accept)
		if got.code != http.StatusOK {
			t.Fatalf("%d: %s", got.code, got.body)
		}
		headers, rows, metadata := read(got.body)
		if diff := cmp.Diff([]string{"Object", "Metric", "Value", "Window", "Age"}, headers); diff != "" {
			t.Errorf("columns (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([][]any{{"web-1", "hits", "500m", "2m0s"}, {"web-2", "hits", "1500", "2m0s"}}, rows); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"shop/web-1", "shop/web-2"}, metadata); diff != "" {
			t.Errorf("metadata (-want +got):\n%s", diff)
		}
		watched := server.do(t, http.MethodGet, root(version)+"/watch"+webPods+"&timeoutSeconds=3&allowWatchBookmarks=true", accept)
		lines := strings.Split(strings.TrimSpace(string(watched.body)), "\n")
		var columns []int
		for _, line := range lines {
			var event metav1.WatchEvent
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			headers, _, _ := read(event.Object.Raw)
			columns = append(columns, len(headers))
		}
		// Headers come with the first event alone. The last is a bookmark, without rows.
		if diff := cmp.Diff([]int{5, 0, 0}, columns); diff != "" {
			t.Errorf("columns of events (-want +got):\n%s", diff)
		}
		if got := server.do(t, http.MethodGet, root(version)+webPods+"&includeObject=Object", accept); got.code != http.StatusBadRequest {
			t.Errorf("rows with objects: %d %s", got.code, got.body)
		}
		if got := server.do(t, http.MethodGet, root(version)+webPods+"&includeObject=None", accept); got.code != http.StatusOK {
			t.Errorf("rows without objects: %d %s", got.code, got.body)
		}
		if got := server.do(t, http.MethodGet, root(version)+webPods, "text/html"); got.code != http.StatusNotAcceptable {
			t.Errorf("HTML: %d", got.code)
		}
	}
}
