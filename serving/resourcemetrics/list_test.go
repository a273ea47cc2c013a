// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	restclient "k8s.io/client-go/rest"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"
	clientscheme "k8s.io/metrics/pkg/client/clientset/versioned/scheme"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// listStore holds pods of three namespaces and two nodes. The newest pod is
// shop/db-0, the newest node is node-b.
func listStore() *samplestore.Store {
	store := newStore()
	usage := samplestore.Usage{Name: "app", CPU: 1000, Memory: 1 << 20}
	put(store.Nodes, "", "node-b", map[string]string{"zone": "b"}, sample(-1e9, usage))
	put(store.Nodes, "", "node-a", map[string]string{"zone": "a"}, sample(-2e9, usage))
	put(store.Pods, "shop", "web-1", map[string]string{"app": "web", "track": "canary"}, sample(-5e9, usage))
	put(store.Pods, "shop", "web-0", map[string]string{"app": "web"}, sample(-4e9, usage))
	put(store.Pods, "shop", "db-0", map[string]string{"app": "db"}, sample(-3e9, usage))
	put(store.Pods, "shop", "starting", map[string]string{"app": "web"}, nil)
	put(store.Pods, "shop", "frozen", map[string]string{"app": "web"}, sample(-maxAge-1e9, usage))
	put(store.Pods, "kube-system", "dns", map[string]string{"app": "dns"}, sample(-6e9, usage))
	put(store.Pods, "blog", "web-0", map[string]string{"app": "web"}, sample(-7e9, usage))
	return store
}

// listed is what matters about a list.
type listed struct {
	Version   string
	Names     []string
	Continue  bool
	Remaining *int64
}

func TestList(t *testing.T) {
	server := serve(t, listStore(), enableAll)
	all := []string{"blog/web-0", "kube-system/dns", "shop/db-0", "shop/web-0", "shop/web-1"}
	tests := map[string]struct {
		// namespace to list pods in; "-" lists nodes.
		namespace string
		options   metav1.ListOptions
		want      listed
	}{
		"all pods":         {want: listed{Version: "1788091197250", Names: all}},
		"one namespace":    {namespace: "shop", want: listed{Version: "1788091197250", Names: all[2:]}},
		"empty namespace":  {namespace: "nobody", want: listed{Version: "1"}},
		"nodes":            {namespace: "-", want: listed{Version: "1788091199250", Names: []string{"node-a", "node-b"}}},
		"pods by label":    {options: metav1.ListOptions{LabelSelector: "app=web"}, want: listed{Version: "1788091196250", Names: []string{"blog/web-0", "shop/web-0", "shop/web-1"}}},
		"by label and ns":  {namespace: "shop", options: metav1.ListOptions{LabelSelector: "app in (web),track!=canary"}, want: listed{Version: "1788091196250", Names: []string{"shop/web-0"}}},
		"no such label":    {options: metav1.ListOptions{LabelSelector: "app=none"}, want: listed{Version: "1"}},
		"without label":    {options: metav1.ListOptions{LabelSelector: "!track"}, want: listed{Version: "1788091197250", Names: all[:4]}},
		"nodes by label":   {namespace: "-", options: metav1.ListOptions{LabelSelector: "zone=a"}, want: listed{Version: "1788091198250", Names: []string{"node-a"}}},
		"by name":          {namespace: "shop", options: metav1.ListOptions{FieldSelector: "metadata.name=web-0"}, want: listed{Version: "1788091196250", Names: []string{"shop/web-0"}}},
		"by unknown name":  {namespace: "shop", options: metav1.ListOptions{FieldSelector: "metadata.name=nobody"}, want: listed{Version: "1"}},
		"not this name":    {namespace: "shop", options: metav1.ListOptions{FieldSelector: "metadata.name!=web-0"}, want: listed{Version: "1788091197250", Names: []string{"shop/db-0", "shop/web-1"}}},
		"name everywhere":  {options: metav1.ListOptions{FieldSelector: "metadata.name=web-0"}, want: listed{Version: "1788091196250", Names: []string{"blog/web-0", "shop/web-0"}}},
		"by namespace":     {options: metav1.ListOptions{FieldSelector: "metadata.namespace=blog"}, want: listed{Version: "1788091193250", Names: []string{"blog/web-0"}}},
		"not in namespace": {options: metav1.ListOptions{FieldSelector: "metadata.namespace!=shop"}, want: listed{Version: "1788091194250", Names: all[:2]}},
		"by both fields":   {options: metav1.ListOptions{FieldSelector: "metadata.namespace=blog,metadata.name=web-0"}, want: listed{Version: "1788091193250", Names: []string{"blog/web-0"}}},
		"contradiction":    {namespace: "shop", options: metav1.ListOptions{FieldSelector: "metadata.namespace=blog"}, want: listed{Version: "1"}},
		"two names":        {namespace: "shop", options: metav1.ListOptions{FieldSelector: "metadata.name=web-0,metadata.name=web-1"}, want: listed{Version: "1"}},
		"field and label":  {namespace: "shop", options: metav1.ListOptions{FieldSelector: "metadata.name=web-0", LabelSelector: "app=db"}, want: listed{Version: "1"}},
		"node by name":     {namespace: "-", options: metav1.ListOptions{FieldSelector: "metadata.name=node-b"}, want: listed{Version: "1788091199250", Names: []string{"node-b"}}},
		"node in ns":       {namespace: "-", options: metav1.ListOptions{FieldSelector: "metadata.namespace=shop"}, want: listed{Version: "1"}},

		"first page":          {options: metav1.ListOptions{Limit: 2}, want: listed{Version: "1788091197250", Names: all[:2], Continue: true, Remaining: new(int64(3))}},
		"page of all":         {options: metav1.ListOptions{Limit: 5}, want: listed{Version: "1788091197250", Names: all}},
		"page with selector":  {options: metav1.ListOptions{Limit: 1, LabelSelector: "app=web"}, want: listed{Version: "1788091196250", Names: all[:1], Continue: true}},
		"page with field":     {namespace: "shop", options: metav1.ListOptions{Limit: 1, FieldSelector: "metadata.name!=web-0"}, want: listed{Version: "1788091197250", Names: []string{"shop/db-0"}, Continue: true}},
		"page of what is one": {namespace: "shop", options: metav1.ListOptions{Limit: 1, FieldSelector: "metadata.name=web-0"}, want: listed{Version: "1788091196250", Names: []string{"shop/web-0"}}},

		"any version":       {options: metav1.ListOptions{ResourceVersion: "0"}, want: listed{Version: "1788091197250", Names: all}},
		"a future version":  {options: metav1.ListOptions{ResourceVersion: "99999999999999999"}, want: listed{Version: "1788091197250", Names: all}},
		"an exact version":  {options: metav1.ListOptions{ResourceVersion: "5", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, want: listed{Version: "1788091197250", Names: all}},
		"not older than":    {options: metav1.ListOptions{ResourceVersion: "5", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, want: listed{Version: "1788091197250", Names: all}},
		"nonsense version":  {options: metav1.ListOptions{ResourceVersion: "nonsense"}, want: listed{Version: "1788091197250", Names: all}},
		"a page at version": {options: metav1.ListOptions{ResourceVersion: "5", Limit: 4}, want: listed{Version: "1788091197250", Names: all[:4], Continue: true, Remaining: new(int64(1))}},
	}
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf, runtime.ContentTypeCBOR} {
		client, err := metricsclient.NewForConfig(&restclient.Config{
			Host:          server.URL,
			QPS:           -1,
			ContentConfig: restclient.ContentConfig{AcceptContentTypes: contentType},
		})
		if err != nil {
			t.Fatal(err)
		}
		for version, of := range map[string]restclient.Interface{"v1": client.MetricsV1().RESTClient(), "v1beta1": client.MetricsV1beta1().RESTClient()} {
			for name, test := range tests {
				t.Run(version+" "+contentType+" "+name, func(t *testing.T) {
					if diff := cmp.Diff(test.want, listBy(t, of, test.namespace, test.options)); diff != "" {
						t.Errorf("list (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

// listBy lists with the client of a version, in the encoding that it asks for.
func listBy(t *testing.T, client restclient.Interface, namespace string, options metav1.ListOptions) listed {
	t.Helper()
	resource := "pods"
	if namespace == "-" {
		resource, namespace = "nodes", ""
	}
	obj, err := client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).
		VersionedParams(&options, clientscheme.ParameterCodec).Do(t.Context()).Get()
	if err != nil {
		t.Fatal(err)
	}
	of, err := meta.ListAccessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	got := listed{Version: of.GetResourceVersion(), Continue: of.GetContinue() != "", Remaining: of.GetRemainingItemCount()}
	err = meta.EachListItem(obj, func(item runtime.Object) error {
		m, err := meta.Accessor(item)
		if err == nil {
			got.Names = append(got.Names, strings.TrimPrefix(m.GetNamespace()+"/"+m.GetName(), "/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestNameIsLookedUp holds that a list of a name does not visit other objects: a match of fields
// allocates.
func TestNameIsLookedUp(t *testing.T) {
	const objects = 1000
	store := newStore()
	for i := range objects {
		name := fmt.Sprintf("web-%d", i)
		put(store.Nodes, "", name, nil, sample(0))
		put(store.Pods, "blog", name, nil, sample(0))
		put(store.Pods, "shop", name, nil, sample(0))
	}
	tests := map[string]struct {
		kind       *kind
		collection *samplestore.Collection
		namespace  string
		selector   string
		want       int
		visitsAll  bool
	}{
		"path":           {kind: pods, collection: store.Pods, namespace: "shop", selector: "metadata.name=web-0", want: 1},
		"both fields":    {kind: pods, collection: store.Pods, selector: "metadata.name=web-0,metadata.namespace=shop", want: 1},
		"node":           {kind: nodes, collection: store.Nodes, selector: "metadata.name=web-0", want: 1},
		"all namespaces": {kind: pods, collection: store.Pods, selector: "metadata.name=web-0", want: 2},
		"not equal":      {kind: pods, collection: store.Pods, namespace: "shop", selector: "metadata.name!=web-0", want: objects - 1, visitsAll: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &storage{kind: test.kind}
			selected := s.selection(test.namespace, &metainternalversion.ListOptions{FieldSelector: fields.ParseSelectorOrDie(test.selector)})
			got := 0
			allocations := testing.AllocsPerRun(1, func() {
				got = 0
				for range selectObjects(test.collection, selected, samplestore.Key{}) {
					got++
				}
			})
			if got != test.want || (allocations >= objects) != test.visitsAll {
				t.Errorf("%d objects and %.0f allocations, want %d objects and to visit all: %t", got, allocations, test.want, test.visitsAll)
			}
		})
	}
}

// TestListWithoutOptions is what a caller in this process may do.
func TestListWithoutOptions(t *testing.T) {
	s := &storage{kind: pods, collection: listStore().Pods, available: available}
	obj, err := s.List(request.WithNamespace(t.Context(), "shop"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(obj.(*list).Items); got != 3 {
		t.Errorf("got %d items, want 3", got)
	}
}

// TestOnlyReads holds that no verb but get, list and watch exists.
func TestOnlyReads(t *testing.T) {
	server := serve(t, listStore(), enableAll)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		for _, path := range []string{"pods", "namespaces/shop/pods", "namespaces/shop/pods/web-0", "nodes", "nodes/node-a"} {
			t.Run(method+" "+path, func(t *testing.T) {
				request, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/apis/metrics.k8s.io/v1/"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := server.Client().Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = response.Body.Close() }()
				if response.StatusCode != http.StatusMethodNotAllowed {
					t.Errorf("got code %d, want %d", response.StatusCode, http.StatusMethodNotAllowed)
				}
			})
		}
	}
}
