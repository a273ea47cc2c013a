// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

var updateRecorded = flag.Bool("update-recorded", false, "record the answers of TestRecordedAnswers anew")

// recordedAccepts are the encodings whose answers are recorded, by file name.
// Those of a list and of one object differ where an answer is less than the object.
var recordedAccepts = map[string]struct{ list, one string }{
	"json":             {},
	"json-pretty":      {list: "application/json;pretty=1"},
	"yaml":             {list: "application/yaml"},
	"protobuf":         {list: "application/vnd.kubernetes.protobuf"},
	"cbor":             {list: "application/cbor"},
	"table":            {list: "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"},
	"table-protobuf":   {list: "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"},
	"html":             {list: "text/html"},
	"partial":          {list: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", one: "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"},
	"partial-protobuf": {list: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", one: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"},
}

// recordedConfigs are what --runtime-config can leave of the group, by the prefix of the files
// with what discovery tells of it.
var recordedConfigs = map[string]func(schema.GroupVersion) bool{
	"discovery":         enableAll,
	"discovery-v1":      func(gv schema.GroupVersion) bool { return gv == metricsv1.SchemeGroupVersion },
	"discovery-v1beta1": func(gv schema.GroupVersion) bool { return gv == metricsv1beta1.SchemeGroupVersion },
}

// recordedPath is a request below a version of the group.
type recordedPath struct {
	path string
	// one object is asked for, and not a list.
	one bool
}

// recordedShapes are recorded in every encoding: they differ in how they are written.
var recordedShapes = []recordedPath{
	{path: "pods"},
	{path: "namespaces/nobody/pods"},
	{path: "pods?limit=2"},
	{path: "namespaces/shop/pods/db-0", one: true},
	{path: "nodes"},
	{path: "nodes/node-c", one: true},
	{path: "nodes/nobody", one: true},
	{path: "pods?fieldSelector=nonsense"},
	{path: "nodes?includeObject=Object"},
	{path: "nodes?includeObject=None"},
	{path: "nodes?includeObject=Everything"},
}

// recordedRequests are recorded as JSON: they differ in what is selected or refused.
func recordedRequests() []recordedPath {
	requests := slices.Clone(recordedShapes)
	for _, path := range []string{
		"namespaces/shop/pods",
		"namespaces/shop/pods?limit=1",
		"pods?limit=2&continue=" + encodeContinue(samplestore.Key{Namespace: "kube-system", Name: "dns"}, 1788091197250),
		"pods?limit=2&continue=" + encodeContinue(samplestore.Key{Namespace: "zoo", Name: "z"}, 1788091197250),
		"pods?limit=2&continue=!!",
		"pods?limit=1&continue=" + encodeContinue(samplestore.Key{Name: "node-a"}, 1),
		"namespaces/shop/pods?limit=1&continue=" + encodeContinue(samplestore.Key{Namespace: "kube-system", Name: "a"}, 1),
		"pods?labelSelector=app%3Dweb",
		"pods?labelSelector=app%20in%20(web,db),!track",
		"pods?labelSelector=a%20b%20c",
		"pods?fieldSelector=metadata.name%3Dweb-0",
		"pods?fieldSelector=metadata.namespace%3Dblog",
		"namespaces/shop/pods?fieldSelector=metadata.name%3Dweb-0",
		"pods?fieldSelector=spec.nodeName%3Dnode-a",
		"nodes?fieldSelector=metadata.name%3Dnode-b",
		"nodes?labelSelector=zone%3Da",
		"nodes?labelSelector=zone%3Dnone",
		"nodes?limit=1",
		"pods?resourceVersion=0",
		"pods?resourceVersion=99999999999999999&resourceVersionMatch=Exact",
		"nodes?resourceVersion=nonsense",
		"nodes?watch=false&timeoutSeconds=1",
		"pods?limit=nonsense",
	} {
		requests = append(requests, recordedPath{path: path})
	}
	for _, path := range []string{
		"nodes/fresh-node",
		"namespaces/shop/pods/starting",
		"namespaces/shop/pods/frozen",
		"namespaces/blog/pods/db-0",
		"namespaces/blog/pods/deleted",
		"namespaces/blog/pods/orphan",
		"namespaces/shop/pods/db-0?resourceVersion=5",
		"namespaces/shop/pods/db-0/status",
	} {
		requests = append(requests, recordedPath{path: path, one: true})
	}
	return requests
}

// recordedStore is listStore with objects that are hard to write, with one that has no
// metrics yet, and with pods that kube-apiserver does not have: one was deleted, and of the
// other a kubelet tells first, as of static ones in the first seconds of a node.
func recordedStore() *samplestore.Store {
	store := listStore()
	put(store.Nodes, "", "node-c", map[string]string{"node-role.kubernetes.io/control-plane": ""},
		sample(-3e9, samplestore.Usage{CPU: 1_234_567_890, Memory: 3 << 30, Swap: 1 << 20, HasSwap: true}))
	put(store.Nodes, "", "fresh-node", nil, nil)
	put(store.Pods, "blog", "deleted", nil, sample(0, samplestore.Usage{Name: "app"}))
	store.Pods.DeleteMeta(samplestore.Key{Namespace: "blog", Name: "deleted"})
	store.Pods.Publish([]samplestore.Update{{Key: samplestore.Key{Namespace: "blog", Name: "orphan"}, Point: sample(0, samplestore.Usage{Name: "app"})}})
	put(store.Pods, "zoo", "no-containers", nil, sample(-8e9))
	put(store.Pods, "zoo", "strange", map[string]string{"quote\"": "back\\slash", "html": "<a href='x'>&</a>", "größe": "日本🚀\u2028"}, sample(-8e9,
		samplestore.Usage{Name: "app", CPU: 7, Memory: 1000},
		samplestore.Usage{Name: "proxy", CPU: 250_000_000, Memory: 12345 << 10, HasSwap: true}))
	return store
}

// TestRecordedAnswers holds complete answers to get and list, headers included,
// to a recording: the first one was made before the group served watch, and clients
// that poll must not see a difference. Look at each line that
// `go test ./serving/resourcemetrics -run TestRecordedAnswers -update-recorded`
// changes: it is a change of the product's API.
func TestRecordedAnswers(t *testing.T) {
	server := serve(t, recordedStore(), enableAll)
	for _, version := range GroupVersions() {
		for encoding, accept := range recordedAccepts {
			t.Run(version.Version+" "+encoding, func(t *testing.T) {
				requests := recordedShapes
				if encoding == "json" {
					requests = recordedRequests()
				}
				var got bytes.Buffer
				for _, r := range requests {
					header := accept.list
					if r.one && accept.one != "" {
						header = accept.one
					}
					path := "/apis/" + version.String() + "/" + r.path
					record(&got, path, header, get(t, server, path, header))
				}
				checkRecorded(t, filepath.Join("testdata", "recorded", version.Version+"-"+encoding+".http"), got.String())
			})
		}
	}
	for prefix, enabled := range recordedConfigs {
		t.Run(prefix, func(t *testing.T) {
			server := serve(t, newStore(), enabled)
			for path, accept := range map[string]string{
				"/apis/metrics.k8s.io":         "",
				"/apis/metrics.k8s.io/v1":      "",
				"/apis/metrics.k8s.io/v1beta1": "",
				"/apis":                        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
			} {
				var got bytes.Buffer
				record(&got, path, accept, get(t, server, path, accept))
				checkRecorded(t, filepath.Join("testdata", "recorded", prefix+strings.ReplaceAll(path, "/", "-")+".http"), got.String())
			}
		})
	}
}

// record writes a request and its answer for people to read: what is not text as
// a hex dump. Date and Audit-Id differ in each answer.
func record(b *bytes.Buffer, path, accept string, a answer) {
	fmt.Fprintf(b, "GET %s\n", path)
	if accept != "" {
		fmt.Fprintf(b, "Accept: %s\n", accept)
	}
	fmt.Fprintf(b, "\n%d\n", a.code)
	a.header.Del("Date")
	a.header.Del("Audit-Id")
	names := make([]string, 0, len(a.header))
	for name := range a.header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range a.header[name] {
			fmt.Fprintf(b, "%s: %s\n", name, value)
		}
	}
	body := string(a.body)
	if !utf8.Valid(a.body) || bytes.ContainsRune(a.body, 0) {
		body = hex.Dump(a.body)
	}
	fmt.Fprintf(b, "\n%s\n", body)
}

// checkRecorded compares with a file, or writes it where that was asked for.
func checkRecorded(t *testing.T, file, got string) {
	t.Helper()
	if *updateRecorded {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("answers differ from %s (-recorded +now):\n%s", file, diff)
	}
}
