// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"runtime/debug"
	"strings"

	"k8s.io/component-base/version"
)

// Version returns the plugin's version: that of its release, else of the module or commit that
// it was built from.
func Version() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(version.Get().GitVersion, info)
}

// versionOf: "go install" sets no version with the linker, and leaves component-base's
// placeholder for git archive.
func versionOf(linked string, info *debug.BuildInfo) string {
	switch {
	case !strings.Contains(linked, "$Format"):
		return linked
	case info != nil && strings.HasPrefix(info.Main.Version, "v"):
		return info.Main.Version
	}
	return "v0.0.0-devel"
}
