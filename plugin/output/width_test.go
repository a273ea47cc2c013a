// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWidth: what a terminal of a width shows; 0 is no terminal.
func TestWidth(t *testing.T) {
	message := Text("pods of image serving:v0.0.9 do not serve v1, so that it is not registered yet")
	tree := []*Node{
		New(Text("Conditions")),
		New(Text("Ready"), Text("True"), Text("all components match the spec")),
	}
	tree[0].Add(Text("Ready"), Text("Unknown"), message).Add(Cell{Text: "next: kubectl describe pods -n metrics-backend-system", Whole: true})
	tree[0].Add(Text("StaleAPIServicesRemoved"), Text("True"), Text("only desired versions"))
	tests := map[string]struct {
		width int
		want  string
	}{
		"no terminal": {width: 0, want: `
Conditions
├── Ready                    Unknown  pods of image serving:v0.0.9 do not serve v1, so that it is not registered yet
│   └── next: kubectl describe pods -n metrics-backend-system
└── StaleAPIServicesRemoved  True     only desired versions

Ready  True  all components match the spec
`},
		"wide": {width: 200, want: `
Conditions
├── Ready                    Unknown  pods of image serving:v0.0.9 do not serve v1, so that it is not registered yet
│   └── next: kubectl describe pods -n metrics-backend-system
└── StaleAPIServicesRemoved  True     only desired versions

Ready  True  all components match the spec
`},
		"a message is wrapped in its column": {width: 80, want: `
Conditions
├── Ready                    Unknown  pods of image serving:v0.0.9 do not serve
│                                     v1, so that it is not registered yet
│   └── next: kubectl describe pods -n metrics-backend-system
└── StaleAPIServicesRemoved  True     only desired versions

Ready  True  all components match the spec
`},
		"a message has no room in its column": {width: 50, want: `
Conditions
├── Ready                    Unknown
│       pods of image serving:v0.0.9 do not serve
│       v1, so that it is not registered yet
│   └── next: kubectl describe pods -n metrics-backend-system
└── StaleAPIServicesRemoved  True
        only desired versions

Ready  True  all components match the spec
`},
		"hardly any room": {width: 30, want: `
Conditions
├── Ready  Unknown
│       pods of image
│       serving:v0.0.9 do not
│       serve v1, so that it
│       is not registered yet
│   └── next: kubectl describe pods -n metrics-backend-system
└── StaleAPIServicesRemoved
        True
        only desired versions

Ready  True
    all components match the
    spec
`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			p := printer{width: tc.width}
			out.WriteByte('\n')
			for i, root := range tree {
				if i > 0 {
					out.WriteByte('\n')
				}
				row{printer: p, cells: root.Cells}.write(&out)
				p.children(&out, root.Children, "")
			}
			if diff := cmp.Diff(tc.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A command that does not fit stays in its column: the terminal continues it on the next line, and
// copies it as one.
func TestCommandIsNotWrapped(t *testing.T) {
	for _, width := range []int{0, 10, 26, 27, 80} {
		var out strings.Builder
		row{printer: printer{width: width}, widths: []int{4}, cells: []Cell{Text(""), NextCommand("kubectl get pods")}}.write(&out)
		if diff := cmp.Diff("      next: kubectl get pods\n", out.String()); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", width, diff)
		}
	}
}
