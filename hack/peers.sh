#!/usr/bin/env bash
# Loads other implementations, which the end-to-end tests take over from, into the current
# cluster; hack/peers-build.sh builds them.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(hack/peers-build.sh)
# The version in go.mod is the image's tag.
version=$(go -C test/peers list -m -f '{{.Version}}' sigs.k8s.io/metrics-server)
mkdir -p bin/images
go -C test/cluster run . image --tag "metrics-backend/metrics-server:$version" \
	--binary "$folder/metrics-server=/metrics-server" --out "$PWD/bin/images/metrics-server.tar"
go -C test/cluster run . load "$PWD/bin/images/metrics-server.tar"
