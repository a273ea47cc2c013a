#!/usr/bin/env bash
# Builds other implementations from test/peers/go.mod, and prints the folder of their
# binaries; progress goes to stderr. The folder is in the same cache as the binaries of
# test/cluster, and is named after the modules and the Go version.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/steps.sh

key=$(cat test/peers/go.mod test/peers/go.sum <(go env GOVERSION GOARCH) | sha256sum | cut -c1-12)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/metrics-backend-operator/peers-$key

metrics_server() {
	local version
	# The version in go.mod becomes the version of the binary.
	version=$(go -C test/peers list -m -f '{{.Version}}' sigs.k8s.io/metrics-server) || return
	mkdir -p "$folder"
	# A killed build leaves no partial binary under the name.
	CGO_ENABLED=0 go -C test/peers build -o "$folder/.metrics-server.partial" \
		-ldflags "-s -w -X sigs.k8s.io/metrics-server/pkg/version.gitVersion=$version" \
		sigs.k8s.io/metrics-server/cmd/metrics-server || return
	mv "$folder/.metrics-server.partial" "$folder/metrics-server"
}

if [ ! -x "$folder/metrics-server" ]; then
	step "build metrics-server (5 minutes when cold)" metrics_server >&2
fi
echo "$folder"
