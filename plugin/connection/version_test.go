// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"runtime/debug"
	"testing"
)

func TestVersionOf(t *testing.T) {
	const placeholder = "v0.0.0-master+$Format:%H$"
	cases := map[string]struct {
		linked string
		info   *debug.BuildInfo
		want   string
	}{
		"a release":        {linked: "v0.2.0", info: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, want: "v0.2.0"},
		"go install":       {linked: placeholder, info: &debug.BuildInfo{Main: debug.Module{Version: "v0.2.0"}}, want: "v0.2.0"},
		"go build":         {linked: placeholder, info: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, want: "v0.0.0-devel"},
		"nothing to go by": {linked: placeholder, want: "v0.0.0-devel"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := versionOf(tc.linked, tc.info); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
