#!/usr/bin/env bash
# peers-build.sh [metrics-server|prometheus-adapter|victoria-metrics|thanos]: builds another implementation from its
# Go module, and prints the folder of its binary; progress goes to stderr. The folder is in
# the same cache as the binaries of test/cluster, and is named after the modules and the Go
# version. Each implementation has a module folder of its own, so that a build of one needs
# nothing of the other.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/steps.sh

name=${1:-metrics-server} tags=
case $name in
metrics-server)
	source=test/peers module=sigs.k8s.io/metrics-server command=cmd/metrics-server minutes=5
	version_variable=sigs.k8s.io/metrics-server/pkg/version.gitVersion
	;;
prometheus-adapter)
	source=test/prometheus-adapter module=sigs.k8s.io/prometheus-adapter command=cmd/adapter minutes=9
	# It has no version of its own: that of its libraries is in its responses.
	version_variable=k8s.io/component-base/version.gitVersion
	;;
victoria-metrics)
	source=test/victoria-metrics module=github.com/VictoriaMetrics/VictoriaMetrics command=app/victoria-metrics minutes=1
	version_variable=github.com/VictoriaMetrics/VictoriaMetrics/lib/buildinfo.Version
	;;
thanos)
	source=test/thanos module=github.com/thanos-io/thanos command=cmd/thanos minutes=6
	# Its conversion of Prometheus' labels wants their old representation.
	tags=slicelabels
	version_variable=github.com/prometheus/common/version.Version
	;;
*)
	echo "peers-build.sh: unknown implementation $name" >&2
	exit 2
	;;
esac

key=$(cat "$source/go.mod" "$source/go.sum" <(go env GOVERSION GOARCH) | sha256sum | cut -c1-12)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/metrics-backend-operator/peers-$key

build() {
	local version
	# The version in go.mod becomes the version of the binary.
	version=$(go -C "$source" list -m -f '{{.Version}}' "$module") || return
	mkdir -p "$folder"
	# A killed build leaves no partial binary under the name.
	CGO_ENABLED=0 go -C "$source" build -tags "$tags" -o "$folder/.$name.partial" \
		-ldflags "-s -w -X $version_variable=$version" "$module/$command" || return
	mv "$folder/.$name.partial" "$folder/$name"
}

if [ ! -x "$folder/$name" ]; then
	step "build $name ($minutes minutes when cold)" build >&2
fi
echo "$folder"
