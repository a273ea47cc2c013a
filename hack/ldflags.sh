#!/usr/bin/env sh
# Prints the linker flags that stamp VERSION into a binary: k8s.io/component-base
# shows it in /version, in the user agent and in the build_info metric.
set -eu
version=${VERSION:-dev}
pkg=k8s.io/component-base/version
# component-base parses a semantic version; "dev" is none.
case $version in
v[0-9]*) git_version=$version ;;
*) git_version=v0.0.0-$version ;;
esac
printf -- '-s -w -X %s.gitVersion=%s -X %s.gitMajor= -X %s.gitMinor=' "$pkg" "$git_version" "$pkg" "$pkg"
