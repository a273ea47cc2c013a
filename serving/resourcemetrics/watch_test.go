// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/websocket"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	restclientwatch "k8s.io/client-go/rest/watch"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// clientCodecs read all that a watch can send.
var clientCodecs = func() serializer.CodecFactory {
	scheme := newScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme, serializer.WithSerializer(cbor.NewSerializerInfo))
}()

// watching is a watch as a client has it.
type watching struct {
	testing.TB
	decoder *restclientwatch.Decoder
}

// follow opens a watch, which client-go's decoder reads. It ends with the test.
func follow(t testing.TB, server *httptest.Server, path, accept string) *watching {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/apis/metrics.k8s.io/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		t.Fatalf("watch of %s: %d: %s", path, response.StatusCode, body)
	}
	mediaType, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	if mediaType == runtime.ContentTypeCBORSequence {
		mediaType = runtime.ContentTypeCBOR
	}
	info, ok := runtime.SerializerInfoForMediaType(clientCodecs.SupportedMediaTypes(), mediaType)
	if !ok || info.StreamSerializer == nil {
		t.Fatalf("watch of %s: cannot read %q", path, mediaType)
	}
	frames := streaming.NewDecoder(info.StreamSerializer.NewFrameReader(response.Body), info.StreamSerializer.Serializer)
	return &watching{TB: t, decoder: restclientwatch.NewDecoder(frames, clientCodecs.UniversalDeserializer())}
}

// next returns the next event as one line, or how the watch ended.
func (w *watching) next() string {
	w.Helper()
	typ, obj, err := w.decoder.Decode()
	if errors.Is(err, io.EOF) {
		return "EOF"
	}
	if err != nil {
		w.Fatal(err)
	}
	line := fmt.Sprintf("%s %T", typ, obj)
	switch obj := obj.(type) {
	case *metav1.Status:
		return fmt.Sprintf("%s %d %s", line, obj.Code, obj.Reason)
	case *metav1.Table:
		for _, row := range obj.Rows {
			line += fmt.Sprintf(" %d %v", len(obj.ColumnDefinitions), row.Cells)
			if row.Object.Raw != nil {
				inner, _, err := clientCodecs.UniversalDeserializer().Decode(row.Object.Raw, nil, nil)
				if err != nil {
					w.Fatal(err)
				}
				line += fmt.Sprintf(" %T%s", inner, w.meta(inner))
			}
		}
		return line + " " + obj.ResourceVersion
	}
	return line + w.meta(obj)
}

func (w *watching) meta(obj runtime.Object) string {
	w.Helper()
	m, err := meta.Accessor(obj)
	if err != nil {
		w.Fatal(err)
	}
	line := " " + m.GetName() + " " + m.GetResourceVersion()
	if m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		line += " end"
	}
	return line
}

// expect reads as many events as it is given.
func (w *watching) expect(events ...string) {
	w.Helper()
	var got []string
	for range events {
		got = append(got, w.next())
	}
	if diff := cmp.Diff(events, got); diff != "" {
		w.Errorf("events (-want +got):\n%s", diff)
	}
}

// millis is the resourceVersion of a sample.
func millis(offset time.Duration) string { return fmt.Sprint(t0.Add(offset).UnixMilli()) }

// TestWatchEncodings streams in every encoding: what is there, its end, what
// comes, and the same for two clients that find all of it encoded.
func TestWatchEncodings(t *testing.T) {
	first, second := millis(0), millis(time.Second)
	tests := map[string]struct {
		accept string
		want   []string
	}{
		"JSON":     {accept: "application/json", want: []string{"ADDED *v1.PodMetrics web-0 " + first, "BOOKMARK *v1.PodMetrics  " + first + " end", "ADDED *v1.PodMetrics web-0 " + second}},
		"protobuf": {accept: "application/vnd.kubernetes.protobuf", want: []string{"ADDED *v1.PodMetrics web-0 " + first, "BOOKMARK *v1.PodMetrics  " + first + " end", "ADDED *v1.PodMetrics web-0 " + second}},
		"CBOR":     {accept: "application/cbor", want: []string{"ADDED *v1.PodMetrics web-0 " + first, "BOOKMARK *v1.PodMetrics  " + first + " end", "ADDED *v1.PodMetrics web-0 " + second}},
		"metadata": {accept: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", want: []string{
			"ADDED *v1.PartialObjectMetadata web-0 " + first, "BOOKMARK *v1.PartialObjectMetadata  " + first + " end", "ADDED *v1.PartialObjectMetadata web-0 " + second,
		}},
		"metadata in protobuf": {accept: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", want: []string{
			"ADDED *v1.PartialObjectMetadata web-0 " + first, "BOOKMARK *v1.PartialObjectMetadata  " + first + " end", "ADDED *v1.PartialObjectMetadata web-0 " + second,
		}},
		"Table": {accept: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", want: []string{
			"ADDED *v1.Table 4 [web-0 250m 3Mi 15.012s] *v1.PartialObjectMetadata web-0 " + first + " " + first,
			"BOOKMARK *v1.Table 0 [ 0 0 0s] *v1.PartialObjectMetadata  " + first + " end " + first,
			"ADDED *v1.Table 0 [web-0 250m 3Mi 15.012s] *v1.PartialObjectMetadata web-0 " + second + " " + second,
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			store := newStore()
			usages := []samplestore.Usage{{Name: "app", CPU: 200_000_000, Memory: 2 << 20}, {Name: "proxy", CPU: 50_000_000, Memory: 1 << 20}}
			put(store.Pods, "shop", "web-0", map[string]string{"app": "web"}, sample(0, usages...))
			server := serve(t, store, enableAll)
			const path = "v1/namespaces/shop/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
			var clients []*watching
			for range 3 {
				client := follow(t, server, path, test.accept)
				client.expect(test.want[:2]...)
				clients = append(clients, client)
			}
			put(store.Pods, "shop", "web-0", map[string]string{"app": "web"}, sample(time.Second, usages...))
			for _, client := range clients {
				client.expect(test.want[2])
			}
		})
	}
}

// TestTableColumns: each client has the columns once, with its first row, however
// many others have had theirs, and what comes after is encoded once for all.
func TestTableColumns(t *testing.T) {
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	store := newStore()
	usage := samplestore.Usage{Name: "app", CPU: 250_000_000, Memory: 3 << 20}
	first, second := millis(0), millis(time.Second)
	var want []string
	for i, columns := range []int{4, 0, 0} {
		name := fmt.Sprintf("web-%d", i)
		put(store.Pods, "shop", name, nil, sample(0, usage))
		want = append(want, fmt.Sprintf("ADDED *v1.Table %d [%s 250m 3Mi 15.012s] *v1.PartialObjectMetadata %s %s %s", columns, name, name, first, first))
	}
	server := serve(t, store, enableAll)
	before := encodedPoints(t)["pods other"]
	var clients []*watching
	for range 4 {
		client := follow(t, server, "v1/pods?watch=true", table)
		client.expect(want...)
		clients = append(clients, client)
	}
	put(store.Pods, "shop", "web-0", nil, sample(time.Second, usage))
	for _, client := range clients {
		client.expect("ADDED *v1.Table 0 [web-0 250m 3Mi 15.012s] *v1.PartialObjectMetadata web-0 " + second + " " + second)
	}
	// The first row of each client, and once each: the two other rows, and the new one.
	if got := encodedPoints(t)["pods other"] - before; got != 4+2+1 {
		t.Errorf("%v points encoded", got)
	}
}

// TestWebSocket: what the API server gives to browsers beside HTTP streams. Who
// leaves gives its place back.
func TestWebSocket(t *testing.T) {
	s := serveTimed(t, usualSettings, usualLimits)
	url := "ws" + strings.TrimPrefix(s.URL, "http") + "/apis/metrics.k8s.io/v1/nodes" + plainQuery
	config, err := websocket.NewConfig(url, s.URL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := config.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	next := func() string {
		t.Helper()
		var event metav1.WatchEvent
		if err := websocket.JSON.Receive(client, &event); err != nil {
			t.Fatal(err)
		}
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(event.Object.Raw, &object); err != nil {
			t.Fatal(err)
		}
		return event.Type + " " + object.Name + " " + object.ResourceVersion
	}
	got := []string{next(), next()}
	put(s.store.Nodes, "", "node-a", nil, sample(time.Second, samplestore.Usage{CPU: 1}))
	got = append(got, next())
	if diff := cmp.Diff([]string{"ADDED node-a " + millis(0), "ADDED node-b " + millis(0), "ADDED node-a " + millis(time.Second)}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	s.await(t, 0)
}
