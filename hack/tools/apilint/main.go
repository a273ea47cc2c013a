// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command apilint checks the fields of CRDs against Kubernetes' API conventions, with the linters of kube-api-linter. It is
// a command of its own since golangci-lint's plugin of them does not build with the version of Go that this project uses.
package main

import (
	"go/ast"
	"go/token"
	"log"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/multichecker"
	"sigs.k8s.io/kube-api-linter/pkg/analysis/registry"
	"sigs.k8s.io/kube-api-linter/pkg/config"
	_ "sigs.k8s.io/kube-api-linter/pkg/registration" // its linters
)

// enabled are the linters whose conventions this API follows. The others want, among more, comments that begin with a
// field's name, a pointer for each optional field, durations as integers, and the tags of Kubernetes' own types.
var enabled = config.Linters{Disable: []string{"*"}, Enable: []string{
	"defaultorrequired", "duplicatemarkers", "integers", "nofloats", "nonullable", "nophase", "noreferences", "notimestamp",
	"optionalorrequired", "ssatags", "uniquemarkers",
}}

func main() {
	analyzers, err := registry.DefaultRegistry().InitializeLinters(enabled, config.LintersConfig{})
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range analyzers {
		run := a.Run
		a.Run = func(pass *analysis.Pass) (any, error) {
			reported, others := pass.Report, typesOfNoObject(pass.Files)
			pass.Report = func(d analysis.Diagnostic) {
				if !slices.ContainsFunc(others, func(t ast.Node) bool { return t.Pos() <= d.Pos && d.Pos < t.End() }) {
					reported(d)
				}
			}
			return run(pass)
		}
	}
	multichecker.Main(analyzers...)
}

// typesOfNoObject returns the declarations of the types that are part of no API object, as their marker for controller-gen says.
func typesOfNoObject(files []*ast.File) []ast.Node {
	var found []ast.Node
	for _, file := range files {
		for _, decl := range file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if ok && d.Tok == token.TYPE && d.Doc != nil && slices.ContainsFunc(d.Doc.List, func(c *ast.Comment) bool {
				return strings.Contains(c.Text, "+kubebuilder:object:generate=false")
			}) {
				found = append(found, d)
			}
		}
	}
	return found
}
