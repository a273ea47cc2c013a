// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package runbooks

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFiles(t *testing.T) {
	const other = "## Other\n```yaml\na: 1\n```\n"
	cases := map[string]struct {
		page  string
		want  map[string]string
		error string
	}{
		"two in a section": {
			page: "# A\n" + other + "## Flux\n```yaml\n# a/b.yaml\na: 1\n```\n```sh\nb\n```\n```yaml\n# c.yaml\nc: 1\n```\n" + other,
			want: map[string]string{"a/b.yaml": "# a/b.yaml\na: 1\n", "c.yaml": "# c.yaml\nc: 1\n"},
		},
		"no section":      {page: other, error: `there is no section "Flux"`},
		"no block":        {page: "## Flux\n" + other, error: "there is no YAML block"},
		"no path":         {page: "## Flux\n```yaml\n# the file\na: 1\n```\n", error: `line 5: the YAML block does not begin with a comment with its path, but with "# the file"`},
		"the same twice":  {page: "## Flux\n```yaml\n# a.yaml\n```\n```yaml\n# a.yaml\n```\n", error: "a.yaml is there twice"},
		"no end of block": {page: "## Flux\n```yaml\n# a.yaml\n", error: `the last block does not end`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got map[string]string
			text, err := section(tc.page, "Flux")
			if err == nil {
				got, err = Files(text)
			}
			message := ""
			if err != nil {
				message = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || message != tc.error {
				t.Errorf("error %q, want %q; (-want +got):\n%s", message, tc.error, diff)
			}
		})
	}
}
