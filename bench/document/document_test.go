// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type about struct {
	Nodes int
	Name  string `json:",omitempty"`
}

const written = `# Title

<!-- bench-x: begin -->

## Results

<!-- bench-x: section {"Nodes":100} -->

### 100

| a |

<!-- bench-x: section {"Nodes":5000,"Name":"--\u003e"} -->

### 5000

<!-- bench-x: end -->

The rest.
`

func TestReplace(t *testing.T) {
	sections := []Section[about]{{about{Nodes: 100}, "### 100\n\n| a |\n"}, {about{5000, "-->"}, "### 5000"}}
	for name, tc := range map[string]struct {
		content string
		want    string
		err     string
	}{
		"empty":       {content: "# Title\n\n<!-- bench-x: begin -->\n<!-- bench-x: end -->\n\nThe rest.\n", want: written},
		"again":       {content: written, want: written},
		"no comments": {content: "# Title\n", err: "has no comments"},
		"no end":      {content: "<!-- bench-x: begin -->\n", err: "has no comments"},
		"of another":  {content: "<!-- bench-y: begin --><!-- bench-y: end -->\n", err: "has no comments"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Replace(tc.content, "x", "## Results\n", sections)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSections(t *testing.T) {
	for name, tc := range map[string]struct {
		content string
		want    []Section[about]
		err     string
	}{
		"two":          {content: written, want: []Section[about]{{about{Nodes: 100}, "### 100\n\n| a |"}, {about{5000, "-->"}, "### 5000"}}},
		"none":         {content: "<!-- bench-x: begin --><!-- bench-x: end -->"},
		"no comments":  {content: "", err: "has no comments"},
		"changed data": {content: strings.Replace(written, `"Nodes":100`, `"Nodes":"many"`, 1), err: "read the comment of a section"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Sections[about](tc.content, "x")
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want one with %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("sections (-want +got):\n%s", diff)
			}
		})
	}
}
