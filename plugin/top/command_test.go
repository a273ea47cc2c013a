// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

func noEnvironment(string) string { return "" }

// flags point to a kubeconfig with the namespace shop.
func flags() *genericclioptions.TestConfigFlags {
	config := clientcmdapi.Config{
		Contexts: map[string]*clientcmdapi.Context{"c": {Namespace: "shop", Cluster: "c"}}, CurrentContext: "c",
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: "http://cluster.example"}},
	}
	return genericclioptions.NewTestConfigFlags().WithClientConfig(clientcmd.NewDefaultClientConfig(config, nil))
}

func TestOnce(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		set   func(*options)
		world func(*world)
		out   string
		errs  string // the error stream
		err   string
		query string // of the list
	}{
		"pods": {out: `
NAME     CPU(cores)   MEMORY(bytes)
cart-0   251m         66Mi
db-0     31m          902Mi
`, query: "/namespaces/shop/pods?"},
		"by memory": {set: func(o *options) { o.sortBy = "memory" }, out: `
NAME     CPU(cores)   MEMORY(bytes)
db-0     31m          902Mi
cart-0   251m         66Mi
`},
		"all namespaces, no heads": {set: func(o *options) { o.allNamespaces, o.noHeaders = true, true }, out: `
shop   cart-0   251m   66Mi
shop   db-0     31m    902Mi
`, query: "/v1/pods?"},
		"containers": {set: func(o *options) { o.containers, o.selector = true, "app=cart" }, out: `
POD      NAME      CPU(cores)   MEMORY(bytes)
cart-0   app       250m         64Mi
cart-0   sidecar   1m           2Mi
db-0     app       30m          900Mi
db-0     sidecar   1m           2Mi
`, query: "labelSelector=app%3Dcart"},
		"one pod": {args: []string{"pod", "cart-0"}, query: "fieldSelector=metadata.name%3Dcart-0", out: `
NAME     CPU(cores)   MEMORY(bytes)
cart-0   251m         66Mi
db-0     31m          902Mi
`},
		"nodes": {args: []string{"nodes"}, out: `
NAME     CPU(cores)   CPU(%)      MEMORY(bytes)   MEMORY(%)
node-a   1000m        25%         4096Mi          25%
node-b   <unknown>    <unknown>   <unknown>       <unknown>
`},
		"nodes without the permission to list them": {args: []string{"nodes"}, world: func(w *world) { w.nodes = 403 }, out: `
NAME     CPU(cores)   CPU(%)   MEMORY(bytes)   MEMORY(%)
node-a   1000m        -        4096Mi          -
`, errs: "no percentages without the permission to list nodes"},
		"a sum": {set: func(o *options) { o.sum = true }, out: `
NAME     CPU(cores)   MEMORY(bytes)
cart-0   251m         66Mi
db-0     31m          902Mi
         ________     ________
         282m         968Mi
`},
		"requests and limits": {set: func(o *options) { o.resources = true }, query: "/api/v1/namespaces/shop/pods?", out: `
NAME     CPU(cores)   CPU(requests)   CPU(limits)   MEMORY(bytes)   MEMORY(requests)   MEMORY(limits)
cart-0   251m         300m            -             66Mi            96Mi               512Mi
db-0     31m          -               -             902Mi           -                  -
`},
		"those of containers": {set: func(o *options) { o.resources, o.containers = true, true }, out: `
POD      NAME      CPU(cores)   CPU(requests)   CPU(limits)   MEMORY(bytes)   MEMORY(requests)   MEMORY(limits)
cart-0   app       250m         200m            1000m         64Mi            64Mi               128Mi
cart-0   sidecar   1m           100m            -             2Mi             32Mi               128Mi
db-0     app       30m          -               -             900Mi           -                  -
db-0     sidecar   1m           -               -             2Mi             -                  -
`},
		"JSON": {set: func(o *options) { o.format, o.resources, o.sortBy = "json", true, "cpu" }, out: `
{
  "items": [
    {
      "namespace": "shop",
      "name": "cart-0",
      "timestamp": "2026-05-04T12:00:00Z",
      "usage": {
        "cpu": "251m",
        "memory": "66Mi"
      },
      "requests": {
        "cpu": "300m",
        "memory": "96Mi"
      },
      "limits": {
        "memory": "512Mi"
      }
    },
    {
      "namespace": "shop",
      "name": "db-0",
      "timestamp": "2026-05-04T12:00:00Z",
      "usage": {
        "cpu": "31m",
        "memory": "902Mi"
      }
    }
  ]
}
`},
		"YAML of nodes": {args: []string{"nodes"}, set: func(o *options) { o.format = "yaml" }, out: `
items:
- allocatable:
    cpu: "4"
    memory: 16Gi
  name: node-a
  timestamp: "2026-05-04T12:00:00Z"
  usage:
    cpu: "1"
    memory: 4Gi
- allocatable:
    cpu: "4"
    memory: 16Gi
  name: node-b
`},
		"resources, forbidden": {set: func(o *options) { o.resources = true }, world: func(w *world) { w.pods = 403 }, err: "list pods, for their requests and limits: "},
		"resources of nodes":   {args: []string{"nodes"}, set: func(o *options) { o.resources = true }, err: "--resources is of pods"},
		"a sum, and JSON":      {set: func(o *options) { o.sum, o.format = true, "json" }, err: "leave out --sum, or --output"},
		"a sum, and watch":     {set: func(o *options) { o.sum, o.watch = true, true }, err: "leave out --watch"},
		"another format":       {set: func(o *options) { o.format = "wide" }, err: `--output "wide": must be text, json or yaml`},
		"forbidden":            {world: func(w *world) { w.lists = 403 }, err: "you need the permission to list and watch pods.metrics.k8s.io in namespace shop; the role view has it"},
		"unauthorized":         {world: func(w *world) { w.lists = 401 }, err: "renew them"},
		"unavailable":          {world: func(w *world) { w.lists = 503 }, err: "`kubectl metrics-backend status` shows more"},
		"other resource":       {args: []string{"deployments"}, err: `"deployments": there are metrics of nodes and of pods only`},
		"sort order":           {set: func(o *options) { o.sortBy = "age" }, err: "must be name, cpu or memory"},
		"nodes of a namespace": {args: []string{"nodes"}, set: func(o *options) { o.namespace = "x" }, err: "nodes have neither"},
		"name and selector":    {args: []string{"pods", "x"}, set: func(o *options) { o.selector = "x" }, err: "not both"},
		"name of all":          {args: []string{"pods", "x"}, set: func(o *options) { o.allNamespaces = true }, err: "leave out"},
		"one and all":          {set: func(o *options) { o.allNamespaces, o.namespace = true, "x" }, err: "exclude each other"},
		"selector":             {set: func(o *options) { o.selector = "a in" }, err: "LabelSelector"},
		"no namespace's name":  {set: func(o *options) { o.namespace = "a/b" }, err: `namespace "a/b"`},
		"short age":            {set: func(o *options) { o.maxAge = 1 }, err: "--max-age 1ns: give at least 1s"},
		"long interval":        {set: func(o *options) { o.interval = time.Minute }, err: "--poll-interval 1m0s, --max-age 1m30s: rows would go"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			if c.world != nil {
				c.world(w)
			}
			o := &options{interval: 15 * time.Second, maxAge: 90 * time.Second, sortBy: "name", format: "text"}
			if c.set != nil {
				c.set(o)
			}
			var out, errs bytes.Buffer
			err := o.complete(c.args, flags())
			if err == nil {
				err = o.run(t.Context(), w.start(t), genericiooptions.IOStreams{In: &out, Out: &out, ErrOut: &errs}, noEnvironment)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("error %v, want one with %q", err, c.err)
			}
			if diff := cmp.Diff(strings.TrimPrefix(c.out, "\n"), trimLines(out.String())); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(errs.String(), c.errs) || c.errs == "" && errs.Len() > 0 {
				t.Errorf("error stream: %s", &errs)
			}
			if all := strings.Join(w.queries, "\n"); !strings.Contains(all, c.query) {
				t.Errorf("no query with %s in\n%s", c.query, all)
			}
		})
	}
}

// trimLines takes out kubectl's tabs at the ends.
func trimLines(text string) string {
	var out strings.Builder
	for l := range strings.Lines(text) {
		out.WriteString(strings.TrimRight(l, " \n") + "\n")
	}
	return out.String()
}

func TestNoAPI(t *testing.T) {
	w := newWorld()
	cluster := w.start(t)
	cluster.Config.Host += "/nowhere"
	o := &options{interval: 15 * time.Second, maxAge: 90 * time.Second, namespace: "shop", sortBy: "name", format: "text"}
	err := o.run(t.Context(), cluster, genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard}, noEnvironment)
	if err == nil || !strings.Contains(err.Error(), "apply a MetricsBackend, or install another implementation") {
		t.Errorf("error %v", err)
	}
}

// lockedBuffer is written by a command while the test waits for lines.
type lockedBuffer struct {
	mu    sync.Mutex
	text  strings.Builder
	lines chan string
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	b.text.Write(p)
	b.mu.Unlock()
	if b.lines != nil {
		b.lines <- strings.TrimRight(string(p), "\n")
	}
	return len(p), nil
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A line for each sample where there is no terminal.
func TestLines(t *testing.T) {
	for name, c := range map[string]struct {
		verbs []string
		fed   string
	}{
		"watch": {[]string{"list", "watch"}, "watching metrics.k8s.io/v1\n"},
		"poll":  {[]string{"list"}, "polling metrics.k8s.io/v1 every 15s: the server names no watch for pods in metrics.k8s.io/v1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.verbs = c.verbs
			out, errs := &lockedBuffer{lines: make(chan string, 10)}, &lockedBuffer{}
			o := &options{namespace: "shop", sortBy: "cpu", watch: true, format: "text", interval: 15 * time.Second, maxAge: time.Minute}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			ended := make(chan error)
			cluster := w.start(t)
			go func() {
				ended <- o.run(ctx, cluster, genericiooptions.IOStreams{Out: out, ErrOut: errs}, noEnvironment)
			}()
			next := func(want string) {
				t.Helper()
				select {
				case got := <-out.lines:
					if got != want {
						t.Errorf("%q, want %q", got, want)
					}
				case <-ctx.Done():
					t.Fatalf("no line %q", want)
				}
			}
			next("TIME                  NAME    CPU(cores)  MEMORY(bytes)")
			next("2026-05-04T12:00:00Z  cart-0  251m        66Mi")
			next("2026-05-04T12:00:00Z  db-0    31m         902Mi")
			if name == "watch" {
				<-w.opened
				w.events <- `{"type":"ADDED","object":` + podAt("cart-0", "2026-05-04T12:00:15Z", 400, 66) + `}`
				next("2026-05-04T12:00:15Z  cart-0  401m        68Mi")
				w.events <- `{"type":"ADDED","object":` + podAt("a-longer-name", "2026-05-04T12:00:16Z", 4, 6) + `}`
				next("2026-05-04T12:00:16Z  a-longer-name  5m          8Mi")
				w.events <- `{"type":"DELETED","object":` + podAt("db-0", "2026-05-04T12:00:15Z", 400, 66) + `}`
				if got := <-out.lines; !strings.HasSuffix(got, "Z  db-0    -           -") {
					t.Errorf("a pod's end: %q", got)
				}
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if got := errs.String(); got != c.fed {
				t.Errorf("error stream %q, want %q", got, c.fed)
			}
		})
	}
}

// An API that hangs is asked for no longer than --request-timeout says.
func TestRequestTimeout(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	cluster, err := connection.ForConfig(&rest.Config{Host: server.URL, Timeout: time.Second}, t.Output(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	o := &options{interval: 15 * time.Second, maxAge: 90 * time.Second, sortBy: "name", format: "text"}
	if err := o.complete(nil, flags()); err != nil {
		t.Fatal(err)
	}
	// Less than the client's own time for the two versions, ten seconds each.
	ctx, cancel := context.WithTimeout(t.Context(), 18*time.Second)
	defer cancel()
	err = o.run(ctx, cluster, genericiooptions.NewTestIOStreamsDiscard(), noEnvironment)
	if err == nil || ctx.Err() != nil {
		t.Errorf("error %v, and of the test's time %v", err, ctx.Err())
	}
}
