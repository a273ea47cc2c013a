// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// TestWalk pages through all pods while pods come and go between pages.
func TestWalk(t *testing.T) {
	usage := samplestore.Usage{Name: "app", CPU: 1, Memory: 1}
	add := func(store *samplestore.Store, name string) {
		namespace, name, _ := strings.Cut(name, "/")
		put(store.Pods, namespace, name, nil, sample(0, usage))
	}
	remove := func(store *samplestore.Store, name string) {
		namespace, name, _ := strings.Cut(name, "/")
		store.Pods.DeleteMeta(samplestore.Key{Namespace: namespace, Name: name})
	}
	tests := map[string]struct {
		limit  int64
		fields string
		// between runs after each page, by the page's number.
		between map[int]func(*samplestore.Store)
		want    [][]string
	}{
		"nothing changes": {
			limit: 2,
			want:  [][]string{{"a/1", "a/2"}, {"a/3", "b/1"}, {"c/1"}},
		},
		"one at a time": {
			limit: 1,
			want:  [][]string{{"a/1"}, {"a/2"}, {"a/3"}, {"b/1"}, {"c/1"}},
		},
		"those of a name": {
			limit:  1,
			fields: "metadata.name=1",
			want:   [][]string{{"a/1"}, {"b/1"}, {"c/1"}},
		},
		"the last one of a page goes": {
			limit:   2,
			between: map[int]func(*samplestore.Store){0: func(s *samplestore.Store) { remove(s, "a/2") }},
			want:    [][]string{{"a/1", "a/2"}, {"a/3", "b/1"}, {"c/1"}},
		},
		"the next one goes": {
			limit:   2,
			between: map[int]func(*samplestore.Store){0: func(s *samplestore.Store) { remove(s, "a/3") }},
			want:    [][]string{{"a/1", "a/2"}, {"b/1", "c/1"}},
		},
		"all that remain go": {
			limit: 2,
			between: map[int]func(*samplestore.Store){0: func(s *samplestore.Store) {
				remove(s, "a/3")
				remove(s, "b/1")
				remove(s, "c/1")
			}},
			want: [][]string{{"a/1", "a/2"}, nil},
		},
		"the namespace of the last one goes": {
			limit: 3,
			between: map[int]func(*samplestore.Store){0: func(s *samplestore.Store) {
				remove(s, "a/1")
				remove(s, "a/2")
				remove(s, "a/3")
				s.Pods.Sweep()
			}},
			want: [][]string{{"a/1", "a/2", "a/3"}, {"b/1", "c/1"}},
		},
		"others come before, between and after": {
			limit: 2,
			between: map[int]func(*samplestore.Store){0: func(s *samplestore.Store) {
				add(s, "a/0")
				add(s, "a/2a")
				add(s, "aa/1")
				add(s, "d/1")
			}},
			want: [][]string{{"a/1", "a/2"}, {"a/2a", "a/3"}, {"aa/1", "b/1"}, {"c/1", "d/1"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			store := newStore()
			for _, name := range []string{"a/1", "a/2", "a/3", "b/1", "c/1"} {
				add(store, name)
			}
			// Two servers over one store take turns, as replicas do.
			clients := [2]metricsclient.Interface{}
			for i := range clients {
				var err error
				if clients[i], err = metricsclient.NewForConfig(&restclient.Config{Host: serve(t, store, enableAll).URL, QPS: -1}); err != nil {
					t.Fatal(err)
				}
			}
			var got [][]string
			versions := map[string]bool{}
			options := metav1.ListOptions{Limit: test.limit, FieldSelector: test.fields}
			for {
				l, err := clients[len(got)%2].MetricsV1().PodMetricses("").List(t.Context(), options)
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for i := range l.Items {
					names = append(names, l.Items[i].Namespace+"/"+l.Items[i].Name)
				}
				if change := test.between[len(got)]; change != nil {
					change(store)
				}
				got = append(got, names)
				versions[l.ResourceVersion] = true
				if options.Continue = l.Continue; options.Continue == "" {
					break
				}
				// The next point of a pod that is ahead.
				store.Pods.Publish([]samplestore.Update{{Key: samplestore.Key{Namespace: "c", Name: "1"}, Point: sample(time.Duration(len(got))*time.Second, usage)}})
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("pages (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]bool{"1788091200250": true}, versions); diff != "" {
				t.Errorf("resourceVersion of all pages (-want +got):\n%s", diff)
			}
		})
	}
}

func TestContinueToken(t *testing.T) {
	encoded := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	tests := map[string]struct {
		token      string
		namespaced bool
		namespace  string
		key        samplestore.Key
		version    int64
		err        string
	}{
		"pod":              {token: encodeContinue(samplestore.Key{Namespace: "a", Name: "b"}, 7), namespaced: true, key: samplestore.Key{Namespace: "a", Name: "b"}, version: 7},
		"pod in namespace": {token: encodeContinue(samplestore.Key{Namespace: "a", Name: "b"}, 7), namespaced: true, namespace: "a", key: samplestore.Key{Namespace: "a", Name: "b"}, version: 7},
		"node":             {token: encodeContinue(samplestore.Key{Name: "b"}, 7), key: samplestore.Key{Name: "b"}, version: 7},
		"other namespace":  {token: encodeContinue(samplestore.Key{Namespace: "a", Name: "b"}, 7), namespaced: true, namespace: "c", err: "continue key is not valid: it belongs to another list"},
		"pod for nodes":    {token: encodeContinue(samplestore.Key{Namespace: "a", Name: "b"}, 7), err: "continue key is not valid: it belongs to another list"},
		"node for pods":    {token: encodeContinue(samplestore.Key{Name: "b"}, 7), namespaced: true, err: "continue key is not valid: it belongs to another list"},
		"no base64":        {token: "%", err: "continue key is not valid: illegal base64 data at input byte 0"},
		"no JSON":          {token: encoded("nonsense"), err: "continue key is not valid: invalid character 'o' in literal null (expecting 'u')"},
		"no object":        {token: encoded("[]"), err: "continue key is not valid: json: cannot unmarshal array into Go value of type storage.continueToken"},
		"other version":    {token: encoded(`{"v":"meta.k8s.io/v2","rv":7,"start":"b"}`), err: "continue key is not valid: server does not recognize this encoded version meta.k8s.io/v2"},
		"no version":       {token: encoded(`{"v":"meta.k8s.io/v1","start":"b"}`), err: "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"},
		"negative version": {token: encoded(`{"v":"meta.k8s.io/v1","rv":-1,"start":"b"}`), err: "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"},
		"no key":           {token: encoded(`{"v":"meta.k8s.io/v1","rv":7}`), err: "continue key is not valid: encoded start key empty (version meta.k8s.io/v1)"},
		"root":             {token: encoded(`{"v":"meta.k8s.io/v1","rv":7,"start":"/"}`), err: "continue key is not valid: it belongs to another list"},
		"traversal":        {token: encoded(`{"v":"meta.k8s.io/v1","rv":7,"start":"../secrets"}`), err: "continue key is not valid: ../secrets"},
		"deep":             {token: encoded(`{"v":"meta.k8s.io/v1","rv":7,"start":"a/b/c"}`), namespaced: true, err: "continue key is not valid: it belongs to another list"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			key, version, err := decodeContinue(test.token, test.namespaced, test.namespace)
			var text string
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(test.err, text); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if key != test.key || version != test.version {
				t.Errorf("got key %v and version %d, want %v and %d", key, version, test.key, test.version)
			}
		})
	}
}

// TestContinueWithResourceVersion holds what kube-apiserver answers.
func TestContinueWithResourceVersion(t *testing.T) {
	token := encodeContinue(samplestore.Key{Namespace: "a", Name: "1"}, 7)
	tests := map[string]struct{ version, err string }{
		"none":    {},
		"any":     {version: "0"},
		"one":     {version: "7", err: "specifying resource version is not allowed when using continue"},
		"no such": {version: "x", err: "specifying resource version is not allowed when using continue"},
	}
	store := newStore()
	client, err := metricsclient.NewForConfig(&restclient.Config{Host: serve(t, store, enableAll).URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := client.MetricsV1().PodMetricses("").List(t.Context(), metav1.ListOptions{Continue: token, ResourceVersion: test.version})
			if (err != nil) != (test.err != "") {
				t.Fatalf("got error %v, want %q", err, test.err)
			}
			if err != nil && (err.Error() != test.err || !apierrors.IsBadRequest(err)) {
				t.Errorf("got error %v, want a bad request with %q", err, test.err)
			}
		})
	}
}

// FuzzContinueToken holds that a foreign token is refused or names a place in
// the list that it is used for, and that ours come back as they were.
func FuzzContinueToken(f *testing.F) {
	f.Add(encodeContinue(samplestore.Key{Namespace: "default", Name: "web-0"}, 1788091200250), true, "")
	f.Add(encodeContinue(samplestore.Key{Namespace: "default", Name: "web-0"}, 1), true, "default")
	f.Add(encodeContinue(samplestore.Key{Name: "node-a"}, 1), false, "")
	f.Add("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiL2EvLi4vYiJ9", true, "a")
	f.Add("!!", false, "x")
	f.Fuzz(func(t *testing.T, token string, namespaced bool, namespace string) {
		key, version, err := decodeContinue(token, namespaced, namespace)
		if err != nil {
			if key != (samplestore.Key{}) || version != 0 {
				t.Errorf("an error and a key: %v, %v, %d", err, key, version)
			}
			return
		}
		if key.Name == "" || (key.Namespace != "") != namespaced || (namespace != "" && key.Namespace != namespace) || version < 1 {
			t.Fatalf("accepted key %#v and version %d for namespaced=%v in %q", key, version, namespaced, namespace)
		}
		again, v, err := decodeContinue(encodeContinue(key, version), namespaced, namespace)
		if err != nil || again != key || v != version {
			t.Fatalf("key %#v and version %d came back as %#v, %d, %v", key, version, again, v, err)
		}
	})
}

// TestTokensOfAllNames holds that whatever kube-apiserver takes for a name goes
// through a token and comes back.
func TestTokensOfAllNames(t *testing.T) {
	for _, name := range []string{"a", "a.b-c", strings.Repeat("a", 253), "0", "x--y"} {
		t.Run(fmt.Sprintf("%.20s", name), func(t *testing.T) {
			want := samplestore.Key{Namespace: "ns", Name: name}
			got, _, err := decodeContinue(encodeContinue(want, 1), true, "")
			if err != nil || got != want {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
		})
	}
}
