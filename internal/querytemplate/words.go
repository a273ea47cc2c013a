// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package querytemplate

import (
	"maps"
	"slices"
	"text/template/parse"
)

// Words returns the last part of each field of a template, such as team of
// .LabelValuesByName.team, and each string literal, sorted. They include the labels that it uses.
func (t *Template) Words() []string {
	seen := words{}
	for _, each := range t.tmpl.Templates() {
		if each.Tree != nil && each.Root != nil {
			seen.add(each.Root)
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

type words map[string]bool

func (w words) add(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil { // no else
			return
		}
		for _, each := range n.Nodes {
			w.add(each)
		}
	case *parse.ActionNode:
		w.add(n.Pipe)
	case *parse.TemplateNode:
		w.add(n.Pipe)
	case *parse.IfNode:
		w.branch(&n.BranchNode)
	case *parse.RangeNode:
		w.branch(&n.BranchNode)
	case *parse.WithNode:
		w.branch(&n.BranchNode)
	case *parse.PipeNode:
		if n == nil { // a template without an argument
			return
		}
		for _, command := range n.Cmds {
			for _, arg := range command.Args {
				w.add(arg)
			}
		}
	case *parse.ChainNode:
		w.add(n.Node)
		w[n.Field[len(n.Field)-1]] = true
	case *parse.FieldNode:
		w[n.Ident[len(n.Ident)-1]] = true
	case *parse.VariableNode:
		w[n.Ident[len(n.Ident)-1]] = true
	case *parse.StringNode:
		w[n.Text] = true
	}
}

func (w words) branch(n *parse.BranchNode) {
	w.add(n.Pipe)
	w.add(n.List)
	w.add(n.ElseList)
}
