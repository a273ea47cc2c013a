// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReplace(t *testing.T) {
	const written = "# Title\n\n<!-- bench-x: begin -->\n\n## Results\n\n| a |\n\n<!-- bench-x: end -->\n\nThe rest.\n"
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
			got, err := Replace(tc.content, "x", "## Results\n\n| a |\n")
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
