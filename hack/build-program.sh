#!/usr/bin/env bash
# build-program.sh NAME: builds another project's program from its Go module, or a command of this
# repository that runs packages of one (argocd-controller, cert-manager), and prints the folder of
# its binary; progress goes to stderr. The folder is in the same cache as the binaries of
# test/cluster, and is named after the modules, the command's files and the Go version. Programs
# whose requirements differ have module folders of their own, so that a build of one needs nothing
# of the others. docs/testing.md lists who uses which program.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/steps.sh
. hack/toolchain.sh

name=${1:?name a program} tags= version_variable=
case $name in
metrics-server)
	source=test/metrics-server module=sigs.k8s.io/metrics-server package=$module/cmd/metrics-server minutes=5
	version_variable=sigs.k8s.io/metrics-server/pkg/version.gitVersion
	;;
prometheus-adapter)
	source=test/prometheus-adapter module=sigs.k8s.io/prometheus-adapter package=$module/cmd/adapter minutes=9
	# It has no version of its own: that of its libraries is in its responses.
	version_variable=k8s.io/component-base/version.gitVersion
	;;
victoria-metrics)
	source=test/victoria-metrics module=github.com/VictoriaMetrics/VictoriaMetrics package=$module/app/victoria-metrics minutes=1
	version_variable=github.com/VictoriaMetrics/VictoriaMetrics/lib/buildinfo.Version
	;;
thanos)
	source=test/thanos module=github.com/thanos-io/thanos package=$module/cmd/thanos minutes=6
	# Its conversion of Prometheus' labels wants their old representation.
	tags=slicelabels
	version_variable=github.com/prometheus/common/version.Version
	;;
source-controller)
	source=test/flux/source-controller module=github.com/fluxcd/source-controller package=$module minutes=6
	;;
helm-controller | kustomize-controller)
	source=test/flux/controllers module=github.com/fluxcd/$name package=$module minutes=6
	;;
argocd-controller)
	source=test/argocd-controller package=. minutes=9
	;;
keda-operator | keda-adapter)
	source=test/keda module=github.com/kedacore/keda/v2 package=$module/cmd/${name#keda-} minutes=9
	;;
cert-manager)
	source=test/cert-manager package=. minutes=6
	;;
*)
	echo "build-program.sh: unknown program $name" >&2
	exit 2
	;;
esac

shopt -s nullglob
key=$(cat "$source/go.mod" "$source/go.sum" "$source"/*.go <(go env GOVERSION GOARCH) | sha256sum | cut -c1-12)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/metrics-backend-operator/peers-$key

build() {
	local version flags="-s -w"
	if [ -n "$version_variable" ]; then
		# The version in go.mod becomes the version of the binary.
		version=$(go -C "$source" list -m -f '{{.Version}}' "$module") || return
		flags+=" -X $version_variable=$version"
	fi
	mkdir -p "$folder"
	# A killed build leaves no partial binary under the name.
	CGO_ENABLED=0 go -C "$source" build -tags "$tags" -o "$folder/.$name.partial" -ldflags "$flags" "$package" || return
	mv "$folder/.$name.partial" "$folder/$name"
}

if [ ! -x "$folder/$name" ]; then
	step "build $name ($minutes minutes when cold)" build >&2
fi
echo "$folder"
