// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

const module = "github.com/metricsbackend/metrics-backend-operator/"

// makers make something that reads from a network, or bound it: names by the beginning of their package's import path. Names of
// packages and variables do not count, which can be changed.
var makers = []struct{ packages, names *regexp.Regexp }{
	{regexp.MustCompile(`^(net/http|golang\.org/x/net/http2)$`), regexp.MustCompile(`^(Client|Transport|DefaultClient|DefaultTransport|Get|Head|Post|PostForm|ReadResponse)$`)},
	{regexp.MustCompile(`^(net|crypto/tls)$`), regexp.MustCompile(`^(Client|Dial.*)$`)},
	{regexp.MustCompile(`^(sigs\.)?k8s\.io/`), regexp.MustCompile(`^(New.*ForConfig.*|.*ClientFor(ConfigAndClient)?|TransportFor|NewManager|NewWithWatch|New(Dynamic|Lazy|.*Discovery)RESTMapper)$`)},
	{regexp.MustCompile(`^(sigs\.)?k8s\.io/.*/(client|cluster|transport)$`), regexp.MustCompile(`^New$`)},
	{regexp.MustCompile(`^` + module + `internal/bodylimit$`), regexp.MustCompile(`.`)},
	{regexp.MustCompile(`^[^/]+\.[^/]+/`), regexp.MustCompile(`^(Dial.*|NewClient.*)$`)},
}

// raw are methods of Kubernetes clients that lead to bodies of others than kube-apiserver.
var raw = regexp.MustCompile(`^(AbsPath|DoRaw|ProxyGet|RESTClient|RequestURI|GetConfig|GetHTTPClient)$`)

// readersOf returns how often a file of a package in folder has what reads: makers as http.Client, raw methods as AbsPath, and
// functions that use the body of a response or a request as Body in open.
func readersOf(t *testing.T, folder string, file *ast.File) map[string]int {
	t.Helper()
	imports := map[string]string{}
	for _, spec := range file.Imports {
		of, _ := strconv.Unquote(spec.Path.Value)
		switch {
		case spec.Name == nil:
			imports[path.Base(of)] = of
			imports[packageOf(of)] = of
		case spec.Name.Name == ".":
			t.Errorf("%s imports %s with a dot, which hides what it reads", folder, of)
		default:
			imports[spec.Name.Name] = of
		}
	}
	found := map[string]int{}
	function := ""
	ast.Inspect(file, func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncDecl); ok {
			function = f.Name.Name
		}
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := selector.Sel.Name
		if x, ok := selector.X.(*ast.Ident); ok && imports[x.Name] != "" {
			of := imports[x.Name]
			for _, m := range makers {
				ours := strings.HasPrefix(of, module) && of != module+"internal/bodylimit"
				if !ours && m.packages.MatchString(of) && m.names.MatchString(name) {
					found[packageOf(of)+"."+name]++
				}
			}
			return true
		}
		switch {
		case raw.MatchString(name):
			found[name]++
		case name == "Body":
			found["Body in "+function]++
		}
		return true
	})
	return found
}

// packageOf returns the last element of an import path that is no version.
func packageOf(of string) string {
	if base := path.Base(of); !regexp.MustCompile(`^v\d+\w*$`).MatchString(base) {
		return base
	}
	return path.Base(path.Dir(of))
}

// TestReadersAreListed checks that docs/concepts/security.md lists each client, each reader of a body, and each use of bodylimit.
func TestReadersAreListed(t *testing.T) {
	_, section, _ := strings.Cut(read(t, root+"/docs/concepts/security.md"), "## What is read from others")
	section, _, _ = strings.Cut(section, "\n## ")
	want := map[string]map[string]int{}
	code := regexp.MustCompile("`([^`]+)`(?: ×([0-9]+))?")
	for _, row := range strings.Split(section, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 6 || !strings.Contains(cells[1], "`") {
			continue
		}
		folder := code.FindStringSubmatch(cells[1])[1]
		if want[folder] == nil {
			want[folder] = map[string]int{}
		}
		for _, match := range code.FindAllStringSubmatch(cells[2], -1) {
			times, _ := strconv.Atoi(cmp.Or(match[2], "1"))
			want[folder][match[1]] += times
		}
	}
	got := map[string]map[string]int{}
	for _, top := range []string{"api", "client", "cmd", "controllers", "internal", "plugin", "serving"} {
		if err := filepath.WalkDir(filepath.Join(root, top), func(name string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			folder, err := filepath.Rel(root, filepath.Dir(name))
			for reader, times := range readersOf(t, folder, file) {
				if got[folder] == nil {
					got[folder] = map[string]int{}
				}
				got[folder][reader] += times
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("bound what is read, and name it in docs/concepts/security.md (-named +found):\n%s", diff)
	}
}

// TestReadersAreFound checks that a reader is found whatever its names are.
func TestReadersAreFound(t *testing.T) {
	cases := map[string]struct {
		code string
		want []string
	}{
		"a renamed import":        {`import web "net/http"; func f() { web.Get("u") }`, []string{"http.Get"}},
		"a client":                {`import "k8s.io/client-go/dynamic"; func f() { dynamic.NewForConfig(nil) }`, []string{"dynamic.NewForConfig"}},
		"a function as a value":   {`import "k8s.io/client-go/rest"; var f = rest.RESTClientFor`, []string{"rest.RESTClientFor"}},
		"a body, by another name": {`func f(r *T) { b := r.Body; g(b) }`, []string{"Body in f"}},
		"of a typed client":       {`import x "k8s.io/client-go/kubernetes/typed/core/v1"; var f = x.NewForConfigAndClient`, []string{"core.NewForConfigAndClient"}},
		"a raw path":              {`func f(c C) { c.x.Get().AbsPath("/apis") }`, []string{"AbsPath"}},
		"with a client":           {`import "k8s.io/client-go/rest"; var f = rest.RESTClientForConfigAndClient`, []string{"rest.RESTClientForConfigAndClient"}},
		"a transport":             {`import "k8s.io/client-go/transport"; var f = transport.New`, []string{"transport.New"}},
		"HTTP/2":                  {`import "golang.org/x/net/http2"; var t http2.Transport`, []string{"http2.Transport"}},
		"a bound":                 {`import "` + module + `internal/bodylimit"; var f = bodylimit.Config`, []string{"bodylimit.Config"}},
		"one of ours":             {`import "` + module + `client"; var f = client.NewClient`, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+tc.code, 0)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]int{}
			for _, w := range tc.want {
				want[w] = 1
			}
			if diff := gocmp.Diff(want, readersOf(t, "x", file)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
