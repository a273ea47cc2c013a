// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package runbooks

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBlocks(t *testing.T) {
	cases := map[string]struct {
		page  string
		want  []string
		error string
	}{
		"two and a table":     {page: "# A\n```sh\nkubectl a\n```\n| kubectl |\n```sh\nb\nc\n```\n", want: []string{"kubectl a\n", "b\nc\n"}},
		"output between":      {page: "```sh\na\n```\n```\nkube-apiserver says\n```\n", want: []string{"a\n"}},
		"none":                {page: "# A\n", error: `there is no block of kind "sh"`},
		"renamed":             {page: "```bash\nkubectl a\n```\n", error: `line 3: the block of kind "bash" has commands, which are run in those of kind "sh" only`},
		"one of two, renamed": {page: "```sh\na\n```\n```console\n$ kubectl a\n```\n", error: `line 6: the block of kind "console" has commands, which are run in those of kind "sh" only`},
		"no end":              {page: "```sh\na\n", error: "the last block does not end"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Blocks(tc.page)
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
