#!/usr/bin/env bash
# Builds other implementations, which the end-to-end tests take over from, from
# test/peers/go.mod, and loads them into the current cluster. The binaries are in the same
# cache folder as those of test/cluster.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/steps.sh

# The version in go.mod becomes the version of the binary, and the image's tag.
version=$(go -C test/peers list -m -f '{{.Version}}' sigs.k8s.io/metrics-server)
key=$(cat test/peers/go.mod test/peers/go.sum <(go env GOVERSION GOARCH) | sha256sum | cut -c1-12)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/metrics-backend-operator/peers-$key

build() {
	mkdir -p "$folder"
	# A killed build leaves no partial binary under the name.
	CGO_ENABLED=0 go -C test/peers build -o "$folder/.metrics-server.partial" \
		-ldflags "-s -w -X sigs.k8s.io/metrics-server/pkg/version.gitVersion=$version" \
		sigs.k8s.io/metrics-server/cmd/metrics-server || return
	mv "$folder/.metrics-server.partial" "$folder/metrics-server"
}

if [ ! -x "$folder/metrics-server" ]; then
	step "build metrics-server $version (5 minutes when cold)" build
fi
mkdir -p bin/images
go -C test/cluster run . image --tag "metrics-backend/metrics-server:$version" \
	--binary "$folder/metrics-server=/metrics-server" --out "$PWD/bin/images/metrics-server.tar"
go -C test/cluster run . load "$PWD/bin/images/metrics-server.tar"
