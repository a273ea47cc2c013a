#!/usr/bin/env sh
# Prints the linker flags that stamp VERSION into a binary, and the commit that it
# is built from: k8s.io/component-base shows both in /version and in the build_info
# metric, and the version in the user agent.
#
# GIT_COMMIT, GIT_TREE_STATE and BUILD_DATE describe the sources for a build without the
# repository (Dockerfile); by default they come from the repository. The date is the
# commit's, so that builds of a commit are reproducible.
set -eu
cd "$(dirname "$0")/.."
version=${VERSION:-dev}
pkg=k8s.io/component-base/version
# component-base requires a semantic version; "dev" is none.
case $version in
v[0-9]*) git_version=$version ;;
*) git_version=v0.0.0-$version ;;
esac

commit=${GIT_COMMIT:-}
state=${GIT_TREE_STATE:-}
date=${BUILD_DATE:-}
# Do not use a repository in a parent folder.
if [ -z "$commit" ] && [ -e .git ] && commit=$(git rev-parse HEAD 2>/dev/null); then
	if [ -n "$(git status --porcelain 2>/dev/null)" ]; then state=dirty; else state=clean; fi
	date=${date:-$(TZ=UTC0 git show --no-patch --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ HEAD)}
fi

printf -- '-s -w -X %s.gitVersion=%s -X %s.gitMajor= -X %s.gitMinor=' "$pkg" "$git_version" "$pkg" "$pkg"
printf -- ' -X %s.gitCommit=%s -X %s.gitTreeState=%s -X %s.buildDate=%s' \
	"$pkg" "$commit" "$pkg" "$state" "$pkg" "${date:-1970-01-01T00:00:00Z}"
