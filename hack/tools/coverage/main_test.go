// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/cover"
)

func TestJudge(t *testing.T) {
	// Two packages' tests ran serving/stream/hub.go: one reached its first block, the
	// other one its second.
	const profile = `mode: set
` + module + `serving/stream/hub.go:1.1,2.2 6 1
` + module + `serving/stream/hub.go:3.1,4.2 3 0
` + module + `serving/stream/hub.go:5.1,6.2 1 0
` + module + `serving/stream/hub.go:1.1,2.2 6 0
` + module + `serving/stream/hub.go:3.1,4.2 3 1
` + module + `serving/stream/hub.go:5.1,6.2 1 0
` + module + `serving/stream/index.go:1.1,2.2 10 1
` + module + `serving/kubelet/schedule.go:1.1,2.2 10 0
`
	tests := map[string]struct {
		part part
		want string
		err  string
	}{
		"enough": {
			part: part{name: "it", least: 95, files: []string{"serving/stream/*.go"}},
			want: "     95.0 %  it (at least 95 %; 19 of 20)\n       90.0 %  serving/stream/hub.go\n",
		},
		"too little": {
			part: part{name: "it", least: 91, files: []string{"serving/stream/hub.go"}},
			want: "     90.0 %  it (at least 91 %; 9 of 10)\n       90.0 %  serving/stream/hub.go\n",
			err:  "90.0 % of it, want 91 %: add tests",
		},
		"a file that was renamed": {
			part: part{name: "it", least: 90, files: []string{"serving/stream/hub.go", "serving/stream/none.go"}},
			want: "     90.0 %  it (at least 90 %; 9 of 10)\n",
			err:  "the profile has no file serving/stream/none.go: update the files of it in hack/tools/coverage",
		},
		"nothing at all": {
			part: part{name: "it", least: 80, files: []string{"client/*.go"}},
			want: "      0.0 %  it (at least 80 %; 0 of 0)\n",
			err:  "the profile has no file client/*.go: update the files of it in hack/tools/coverage; 0.0 % of it, want 80 %: add tests",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			profiles, err := cover.ParseProfilesFromReader(strings.NewReader(profile))
			if err != nil {
				t.Fatal(err)
			}
			report, err := judge(profiles, []part{test.part})
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(test.err, text); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			_, lines, _ := strings.Cut(report, "\n")
			if diff := cmp.Diff(test.want, lines); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}
